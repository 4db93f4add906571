"""Token files: mapped, cut into blocks, never out of the vocabulary, the same after any resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.memory import make_batches
from ludus.testing import trainers
from tests.data.files import load, write_tokens
from tests.supervised.conftest import QUIET

FILES = ("a.bin", "a.npy")


def batches(dataset: Any, **changed: Any) -> Any:
    options = {"batch_size": 4, "shuffle": True, "drop_last": False, "workers": 0, "seed": 3}
    return make_batches(dataset, device=torch.device("cpu"), **{**options, **changed})


def epoch(data: Any, number: int) -> list[Tensor]:
    data.start(number)
    found = []
    while not data.has_ended():
        found.append(torch.stack(data.next()))
    data.close()
    return found


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_target_is_its_block_one_token_later(name: str, dtype: str, tmp_path: Path) -> None:
    splits = load(write_tokens(tmp_path / name, dtype=dtype))
    assert (splits.name, splits.num_classes, splits.test) == ("a", 17, None)
    # 400 tokens to learn from and 100 to validate on, in blocks of 8.
    assert (len(splits.train), len(splits.validation)) == (49, 12)  # type: ignore[arg-type]
    for part in (splits.train, splits.validation):
        for index in range(12):
            inputs, targets = part[index]  # type: ignore[index]
            assert inputs.dtype == targets.dtype == torch.int64
            assert inputs.shape == (8,)
            assert torch.equal(inputs[1:], targets[:-1])
            assert targets[-1] == (inputs[-1] + 1) % 17


def test_validation_blocks_stand_one_after_another_and_share_no_token_with_training(
    tmp_path: Path,
) -> None:
    section = write_tokens(tmp_path / "a.bin")
    np.arange(500, dtype=np.uint16).tofile(tmp_path / "a.bin")
    splits = load(section, vocabulary_size=500)
    validation = torch.cat([splits.validation[n][0] for n in range(12)])  # type: ignore[index]
    assert validation.tolist() == list(range(400, 496))
    train = torch.cat([torch.cat(splits.train[n % 49]) for n in range(3000)])
    assert (train.min(), train.max()) == (0, 399)


def test_blocks_come_from_seed_epoch_and_index_with_any_number_of_workers(tmp_path: Path) -> None:
    dataset = load(write_tokens(tmp_path / "a.bin")).train
    first = epoch(batches(dataset), 0)
    for changed in ({"workers": 2}, {}):
        found = epoch(batches(dataset, **changed), 0)
        assert all(torch.equal(a, b) for a, b in zip(first, found, strict=True))
    assert not torch.equal(first[0], epoch(batches(dataset), 1)[0])
    assert not torch.equal(first[0], epoch(batches(dataset, seed=4), 0)[0])
    data = batches(dataset, workers=2)
    data.load_state_dict({"epoch": 0, "position": 5})
    assert torch.equal(torch.stack(data.next()), first[5])
    data.close()


def test_validation_may_be_another_file(tmp_path: Path) -> None:
    section = write_tokens(tmp_path / "train.bin")
    write_tokens(tmp_path / "val.bin", 41)
    other = {"validation_fraction": None, "validation_path": str(tmp_path / "val.bin")}
    splits = load(section, **other)
    assert (len(splits.train), len(splits.validation)) == (62, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"vocabulary_size": 16}, r"token 16 of .*a.bin is 16, but .* ids are 0 to 15; correct it"),
        ({"block_size": 400}, r"400 tokens for training, but a block and its target take 401"),
        ({"block_size": 100}, r"100 tokens for validation, but .* take 101"),
        ({"dtype": None}, "'dtype' is null, but a raw file"),
        ({"validation_path": "x.bin"}, "either a share of the file or another file"),
        ({"validation_fraction": None}, "either a share of the file or another file"),
        ({"path": "none.bin"}, "there is no such file"),
        ({"dtype": "uint32"}, r"token 0 of .* is 65536"),
    ],
)
def test_a_mistake_is_one_sentence_before_training(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    section = write_tokens(tmp_path / "a.bin")
    with pytest.raises(ConfigError, match=said):
        load(section, **changed)


def test_files_that_hold_no_ids_are_refused(tmp_path: Path) -> None:
    section = write_tokens(tmp_path / "a.bin")
    (tmp_path / "a.bin").write_bytes(b"odd")
    with pytest.raises(ConfigError, match="has 3 bytes, which are no uint16 ids"):
        load(section)
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match="has 0 bytes"):
        load(section)
    section = write_tokens(tmp_path / "a.npy")
    for array in (np.zeros((3, 4), np.uint16), np.zeros(30)):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(ConfigError, match="not one row of whole numbers"):
            load(section)
    (tmp_path / "a.npy").write_bytes(b"nothing of numpy")
    with pytest.raises(ConfigError, match=r"is not a .npy file that can be read"):
        load(section)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_id_that_only_a_batch_finds_ends_in_a_sentence(workers: int, tmp_path: Path) -> None:
    """As when a file is changed after it was checked."""
    dataset = load(write_tokens(tmp_path / "a.bin")).train
    np.full(500, 99, np.uint16).tofile(tmp_path / "a.bin")
    data = batches(dataset, workers=workers)
    data.start(0)
    with pytest.raises(LudusError, match=r"^token \d+ of .* is 99, but .* the file$"):
        data.next()
    data.close()


def test_a_file_larger_than_what_is_read_of_it_is_not_loaded(tmp_path: Path) -> None:
    section = write_tokens(tmp_path / "a.bin")
    with (tmp_path / "a.bin").open("wb") as file:
        # A hole of 64 GiB takes no room on the disk, and would not fit into memory.
        file.truncate(64 << 30)
    splits = load(section, examples_per_epoch=100)
    assert len(splits.train) == 100  # type: ignore[arg-type]
    assert splits.train[3][0].tolist() == [0] * 8
    assert splits.train.identity()  # type: ignore[attr-defined]


class Bigram(nn.Module):
    """Predicts a token from the one before it: (B, T) ids to (B, V, T) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(17, 17)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.table(ids).transpose(1, 2)
        return out


def make(section: dict[str, Any], **changed: Any) -> Any:
    config = ludus.example("supervised").replace(
        **{
            "data": section, "model": None, "batch_size": 4, "max_epochs": 2, "engine": "eager",
            "evaluation.patience": None, "evaluation.keep": 0, "optimizer.learning_rate": 0.1,
            "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0}, **QUIET, **changed,
        }
    )  # fmt: skip
    trainer: Any = ludus.build_trainer(config)
    torch.manual_seed(0)
    trainer.set_model(Bigram())
    return trainer


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_on_tokens_killed_anywhere_ends_with_the_same_bytes(
    workers: int, tmp_path: Path
) -> None:
    section = {**write_tokens(tmp_path / "a.bin"), "examples_per_epoch": 24}
    changed = {"settings.workers": workers}
    trainers.check_kill_anywhere(
        lambda: make(section, **changed), tmp_path / "runs", max_kills=1 if workers else 2
    )


def test_a_language_model_learns_what_follows_what(tmp_path: Path) -> None:
    trainer = make(write_tokens(tmp_path / "a.bin"), max_epochs=6, ema_decay=None)
    trainer.fit(root=str(tmp_path))
    assert trainer.logger.written["validation/epoch_accuracy"] == 1.0


def test_a_resume_with_other_tokens_is_refused(tmp_path: Path) -> None:
    section = write_tokens(tmp_path / "a.bin")
    make(section).fit(root=str(tmp_path), name="run")
    ids = np.fromfile(tmp_path / "a.bin", dtype=np.uint16)
    ids[123] = 3
    ids.tofile(tmp_path / "a.bin")
    with pytest.raises(LudusError, match="data"):
        make(section, max_epochs=3).fit(root=str(tmp_path), name="run", resume=True)
