"""A pool that cannot be read, changes or teaches nothing is told in a sentence, and no label is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

import ludus
from ludus.active.examples import PoolExamples
from ludus.core.errors import CheckpointError, Diverged, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.testing.trainers import run_trainer
from tests.active.conftest import HUMAN, file_of, small_active
from tests.active.test_bad_input import given
from tests.command_line import Ludus

INPUTS = torch.randn(30, 13, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(30) % 3
GONE = OSError("gone")


class Lazy(Dataset[Any]):
    """Reads one example at a time, with some noise, and may fail at one."""

    def __init__(self, *, bad: int | None = None, what: Any = GONE) -> None:
        self.bad, self.what, self.size = bad, what, 30

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: int) -> tuple[Tensor, Any]:
        if row >= self.size:
            raise IndexError(row)
        found = INPUTS[row] + 0.1 * torch.randn(13)
        if row != self.bad:
            return found, int(TARGETS[row])
        if isinstance(self.what, Exception):
            raise self.what
        return (found[:5], 0) if self.what == "short" else (found, self.what)


def pool_of(source: Any, workers: int = 0) -> PoolExamples:
    return PoolExamples(source, device=torch.device("cpu"), workers=workers, seed=1)


def streamed(source: Any, workers: int = 0) -> Tensor:
    stream = pool_of(source, workers).stream(torch.arange(30), batch_size=8)
    return torch.cat([inputs for _, inputs in stream])


def test_workers_read_the_examples_that_this_process_reads() -> None:
    assert torch.equal(streamed(Lazy()), streamed(Lazy(), workers=2))
    assert torch.equal(streamed(Lazy()), pool_of(Lazy()).inputs(torch.arange(30)))
    noise = streamed(Lazy()) - INPUTS
    assert not torch.allclose(noise[0], noise[1], atol=1e-3)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_example_that_cannot_be_read_is_named(workers: int) -> None:
    with pytest.raises(LudusError, match=r"^example 17 of the pool cannot be read: OSError: gone;"):
        streamed(Lazy(bad=17), workers)
    with pytest.raises(
        LudusError, match=r"^8 examples of the pool do not make a batch: .*one shape"
    ):
        streamed(Lazy(bad=17, what="short"), workers)


def test_a_target_that_is_no_number_is_named() -> None:
    for what in ("cat", [1, 2], None):
        with pytest.raises(LudusError, match="the target of example 17 of the pool is"):
            pool_of(Lazy(bad=17, what=what)).targets(torch.tensor([16, 17]))


def test_the_collate_function_of_a_loader_makes_the_batches_of_the_pool() -> None:
    def padded(items: list[Any]) -> tuple[Tensor, Tensor]:
        inputs = nn.utils.rnn.pad_sequence([one[0] for one in items], batch_first=True)
        return inputs, torch.tensor([one[1] for one in items])

    loader = DataLoader(Lazy(bad=17, what="short"), batch_size=8, collate_fn=padded)
    assert streamed(loader).shape == (30, 13)
    assert streamed(loader)[17, 5:].tolist() == [0] * 8
    doubled = DataLoader(
        TensorDataset(INPUTS, TARGETS),
        collate_fn=lambda items: torch.stack([2 * x for x, _ in items]),
    )
    assert torch.equal(streamed(doubled), 2 * INPUTS)
    sampler = BatchSampler(SequentialSampler(range(len(INPUTS))), batch_size=8, drop_last=False)
    sampled = DataLoader(doubled.dataset, batch_sampler=sampler, collate_fn=doubled.collate_fn)
    assert torch.equal(streamed(sampled), 2 * INPUTS)


def test_what_was_labelled_before_an_example_failed_is_kept(tmp_path: Path) -> None:
    pool = Lazy()

    def trainer() -> Any:
        made = given(INPUTS, TARGETS, **{"settings.checkpoint.every_stages": 1})
        made.loaders["train"] = pool
        return made

    class Breaks:
        def after_label(self) -> None:
            pool.size = 30 if len(told) else 3

    told: list[str] = []
    first = trainer()
    first.add(Breaks(), name="breaks")
    with pytest.raises(
        LudusError, match=r"example \d+ of the pool cannot be read: IndexError"
    ) as no:
        first.fit(root=str(tmp_path))
    told.append(str(no.value))
    pool.size = 30
    second = trainer()
    second.add(Breaks(), name="breaks")
    assert second.fit(root=str(tmp_path), resume=True).status == "finished"
    lines = (tmp_path / "wines/journals/labels.jsonl").read_text().splitlines()
    answered = [row for line in lines for row in json.loads(line)["record"]["rows"]]
    assert len(answered) == len(set(answered)) == 14


@pytest.mark.parametrize("size", [20, 40])
def test_a_pool_of_another_length_is_refused_when_a_run_resumes(size: int, tmp_path: Path) -> None:
    run_trainer(lambda: given(INPUTS, TARGETS), tmp_path, "a", kill_at=12)
    with pytest.raises(
        CheckpointError, match=r"the data are others than those that .*/a was trained on"
    ):
        run_trainer(lambda: given(torch.randn(size, 13), torch.arange(size) % 3), tmp_path, "a")


class Late(nn.Module):
    """Gives NaN once it was trained for some steps: in training, or only when it is asked."""

    def __init__(self, steps: int, *, is_silent: bool) -> None:
        super().__init__()
        self.last, self._steps, self._is_silent = nn.Linear(13, 3), steps, is_silent
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        is_bad = int(self.calls) > self._steps and not (self._is_silent and self.training)
        found: Tensor = self.last(x) * (float("nan") if is_bad else 1.0)
        return found


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_fit_that_diverges_in_a_late_round_is_told_and_its_labels_are_kept(
    is_silent: bool, tmp_path: Path
) -> None:
    # One step in each of two epochs of the first two rounds, so the third is the first to fail.
    trainer = given(
        INPUTS, TARGETS, model=None, round_start="warm", batch_size=32, max_rounds=4,
        **{"settings.checkpoint.every_stages": 1},
    )  # fmt: skip
    trainer.set_model(Late(5, is_silent=is_silent))
    words = (
        "the model gives outputs that are not finite for row"
        if is_silent
        else "train/loss became nan by opt_step 6; lower the learning rate"
    )
    with pytest.raises(LudusError if is_silent else Diverged, match=words):
        trainer.fit(root=str(tmp_path))
    run = tmp_path / "wines"
    assert len((run / "journals/labels.jsonl").read_text().splitlines()) == 3
    assert any((run / "checkpoints").iterdir())


def test_first_labels_of_one_class_are_no_mistake() -> None:
    targets = torch.zeros(30, dtype=torch.int64)
    targets[29] = 1
    for selection in (None, "leep", "logme", "nce", "h_score"):
        trainer = given(INPUTS, targets, initial_labels=3, selection=selection)
        trainer.fit(runtime=InMemoryRuntime)
        assert trainer.pool.labels[:3].tolist() == [0, 0, 0]
        assert trainer.pool.num_labelled == 11


@pytest.mark.parametrize(
    ("net", "problem"),
    [
        (nn.Linear(13, 1), "the model knows one class only"),
        (
            nn.Linear(13, 2),
            "the label of row 2 is 2; the classes of this run are the whole numbers",
        ),
        (
            nn.Sequential(nn.Linear(13, 6), nn.Unflatten(1, (3, 2))),
            "the model cannot learn from this",
        ),
        (nn.Linear(12, 3), "the model cannot learn from this data"),
    ],
)
def test_a_network_whose_outputs_are_not_the_classes_is_refused(
    net: nn.Module, problem: str, tmp_path: Path
) -> None:
    trainer = given(INPUTS, TARGETS, model=None)
    trainer.set_model(net)
    with pytest.raises(LudusError, match=problem):
        trainer.fit(root=str(tmp_path))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0, 0.0])
def test_weights_of_classes_are_finite_and_above_zero(weight: float) -> None:
    with pytest.raises(LudusError, match=r"'class_weights.1' must be"):
        small_active(class_weights=[1.0, weight, 1.0])


def test_a_directory_with_files_of_the_user_is_left_as_it_is(call: Ludus) -> None:
    Path("runs/wines").mkdir(parents=True)
    Path("runs/wines/thesis.txt").write_text("mine")
    told = call("train", file_of(Path("a.yaml"))).refusal()
    assert "is not a run, yet holds thesis.txt; choose another name" in told
    assert [one.name for one in Path("runs/wines").iterdir()] == ["thesis.txt"]


def waiting(call: Ludus) -> list[int]:
    call("train", file_of(Path("a.yaml"), oracle=HUMAN))
    rows: list[int] = json.loads(Path("runs/wines/queries/round-0000.json").read_text())["rows"]
    return rows


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_answers_in_another_encoding_are_refused(encoding: str, call: Ludus) -> None:
    rows = waiting(call)
    text = "".join(f"{row},1,\u00e9\n" for row in rows)
    Path("odd.csv").write_bytes(text.encode(encoding))
    told = call("label", "runs/wines", "--csv", "odd.csv").refusal()
    assert told == "odd.csv is not UTF-8 text; save it as CSV in UTF-8"
    Path("odd.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert call("label", "runs/wines", "--csv", "odd.csv").out.startswith("6 answers were kept")


def test_a_label_that_was_edited_in_the_journal_is_told_with_what_to_do(call: Ludus) -> None:
    rows = waiting(call)
    call("label", "runs/wines", stdin="1\n" * 6)
    journal = Path("runs/wines/journals/labels.jsonl")
    before = journal.read_text()
    journal.write_text(before.replace('"labels":[1]', '"labels":[8]').replace(": [1]", ": [8]"))
    assert journal.read_text() != before
    told = call("resume", "runs/wines").refusal()
    assert f"journals/labels.jsonl: the label of row {rows[0]} is 8" in told
    assert "mend or delete its line, and the rows in it are asked for again" in told
    journal.write_text("".join(before.splitlines(keepends=True)[1:]))
    assert "waiting for 1 label of 6" in call("resume", "runs/wines").out


@pytest.mark.parametrize(
    "edit",
    [
        {"rows": [-4]},
        {"rows": None},
        {"format": 99},
        {"num_classes": "three"},
        {"picture": ["a"]},
        {"has_inputs": True, "rows": [1, 2]},
    ],
)
def test_queries_that_were_edited_are_told_and_written_anew(edit: Any, call: Ludus) -> None:
    rows = waiting(call)
    path = Path("runs/wines/queries/round-0000.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    told = call("label", "runs/wines", stdin="1\n").refusal()
    assert "is damaged" in told
    assert "to have it rewritten: ludus resume runs/wines" in told
    call("resume", "runs/wines")
    assert json.loads(path.read_text())["rows"] == rows


def test_an_answer_to_a_row_that_only_an_edited_file_asks_for_changes_nothing(call: Ludus) -> None:
    rows = waiting(call)
    other = next(row for row in range(106) if row not in rows)
    path = Path("runs/wines/queries/round-0000.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": [other, *rows[1:]]}))
    assert (
        "it has changed since it was written"
        in call("label", "runs/wines", stdin="1\n" * 6).refusal()
    )
    assert "waiting for 6 labels of 6" in call("resume", "runs/wines").out
    trainer: Any = ludus.build_trainer(small_active(oracle=HUMAN))
    assert trainer.fit(root="runs", resume=True).status == "interrupted"
    assert other not in trainer.pool.asked.tolist()


def test_what_a_data_set_opens_when_it_is_read_here_is_not_shared_with_its_processes() -> None:
    class Opens(Dataset[Any]):
        def __init__(self) -> None:
            self.opened: list[int] | None = None

        def __len__(self) -> int:
            return 6

        def __getitem__(self, row: int) -> tuple[Tensor, int]:
            self.opened = self.opened or [row]
            return INPUTS[row], 0

    inner = Opens()
    for source in (inner, Subset(inner, range(6)), ConcatDataset([inner])):
        pool = PoolExamples(source, device=torch.device("cpu"), workers=2, seed=0)
        pool.inputs(torch.arange(3))
        assert inner.opened is None
