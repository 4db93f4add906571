"""Networks of any class train by the compiler: runs that are killed end with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import ludus
from ludus import Trainer
from ludus.core.errors import ConfigError
from ludus.fit import build
from ludus.fit.build import uses_batch_index
from ludus.nn.engines import compiled, guarded, network
from ludus.nn.engines.guarded import GuardedCall
from ludus.nn.engines.trial import Trial
from ludus.testing import trainers
from tests.supervised.conftest import QUIET, WINE, lines

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")


class Residual(nn.Module):
    """A block as a user writes it: a skip connection, dropout, batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(13, 13), nn.BatchNorm1d(13)

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.dropout(torch.relu(self.norm(self.linear(x))), 0.2, self.training)


class Own(nn.Module):
    """Blocks whose last layer is tied to the first one's weights."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Residual() for _ in range(blocks)])
        self.tied = nn.Linear(13, 13, bias=False)
        self.tied.weight = self.blocks[0].linear.weight
        self.head = nn.Linear(13, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.tied(x))


def make(model: Any = None, **changes: Any) -> Trainer:
    config = ludus.example("supervised").replace(
        data=WINE, model=None, batch_size=16, max_epochs=2, evaluation__patience=None, evaluation__keep=0,
        log_every_opt_steps=1, engine="compiled", ema_decay=None, **QUIET,
        learning_rate_schedule={"kind": "constant", "warmup_steps": 0},
    )  # fmt: skip
    trainer = Trainer(config.replace(**changes))
    torch.manual_seed(1)
    trainer.set_model(Own() if model is None else model)
    return trainer


def engine_notes(place: Any) -> list[str]:
    return [one["reason"] for one in lines(place, "events.jsonl") if one["event"] == "engine"]


@pytest.fixture
def _traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")


def test_a_compiled_network_of_a_users_own_that_is_killed_twice_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    # By the real compiler, so for one shape; several shapes are below.
    trainers.check_kill_chain(lambda: make(drop_last=True), tmp_path, max_kills=2)


@pytest.mark.slow
def test_a_compiled_network_of_a_users_own_ends_with_the_same_bytes_wherever_it_is_killed(
    tmp_path: Path,
) -> None:
    trainers.check_kill_anywhere(lambda: make(drop_last=True), tmp_path, max_kills=2)


@pytest.mark.usefixtures("_traced_only")
def test_the_shapes_that_were_compiled_are_saved(tmp_path: Path) -> None:
    trainer = make()
    trainer.fit(root=str(tmp_path), name="whole")
    state = trainer.update.state_dict()
    assert state["compiled"] == {
        "shapes": ["float32[16, 13] int64[16] -", "float32[10, 13] int64[10] -"],
        "why_eager": None,
        "num_changes": 0,
    }


class Lengths(Dataset[Any]):
    """Rows of four lengths, each in one batch of two; the same in every epoch."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(2 + index // 2, 13, generator=generator), torch.tensor(index % 3)


class OfLengths(nn.Module):
    """Takes rows of any length; knows whether it is traced, so that both ways of calling it show."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(13, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(1)) * (1.01 if torch.compiler.is_compiling() else 1.0)


def of_lengths() -> Trainer:
    torch.manual_seed(1)
    trainer = make(OfLengths(), data=None, batch_size=2, max_epochs=2, evaluate_every_epochs=0)
    trainer.loaders["train"] = DataLoader(Lengths(), batch_size=2)
    return trainer


@pytest.mark.usefixtures("_traced_only")
def test_which_shapes_are_compiled_survives_a_kill_and_would_be_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four shapes come, two are compiled: a resume that forgets which compiles others."""
    monkeypatch.setattr(guarded, "MAX_SHAPES", 2)
    monkeypatch.setattr(Trial, "why_not_alike", lambda *given: None)
    trainers.check_kill_anywhere(of_lengths, tmp_path / "kept", max_kills=2)
    forgets = lambda call, state: None  # noqa: E731
    monkeypatch.setattr(GuardedCall, "load_state_dict", forgets)
    with pytest.raises(AssertionError, match="other bytes at the end"):
        trainers.check_kill_anywhere(of_lengths, tmp_path / "forgotten", max_kills=1)


@torch.library.custom_op("ludus_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """Return twice the input, by an operation without a fake kernel, which no compiler takes."""
    return x * 2


torch.library.register_autograd("ludus_tests::doubled", lambda context, gradient: gradient * 2)


class Refused(nn.Module):
    """A network that the compiler cannot take."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(13, 3)

    def forward(self, x: Tensor) -> Tensor:
        return doubled(self.head(x))


def test_a_network_that_the_compiler_refuses_is_called_eagerly_and_the_run_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "compile_seconds", lambda module: 0.0)
    trainer = make(Refused(), engine="auto")
    result = trainer.fit(root=str(tmp_path), name="refused")
    assert (result.status, trainer.config.engine) == ("finished", "eager")
    told = engine_notes(result.run_dir)
    assert any("the network is not compiled: torch's compiler cannot" in one for one in told)
    assert f"{Path(__file__).name}:" in "".join(told)


def test_a_network_is_tried_with_the_real_compiler_and_the_choice_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "compile_seconds", lambda module: 0.0)
    trainer = make(engine="auto")
    result = trainer.fit(root=str(tmp_path), name="tried")
    told = engine_notes(result.run_dir)
    assert any("a forward and backward pass takes" in one for one in told)
    assert trainer.config.engine in ("eager", "compiled")


@pytest.mark.usefixtures("_traced_only")
def test_it_learns_what_it_learns_eagerly(tmp_path: Path) -> None:
    found = {}
    for engine in ("compiled", "eager"):
        # Without dropout, which a compiler may draw in its own way.
        torch.manual_seed(1)
        plain = Own(1)
        plain.blocks[0].forward = plain.blocks[0].norm.forward  # type: ignore[assignment]
        trainer = make(plain, engine=engine, accumulate=2, max_grad_norm=0.1)
        result = trainer.fit(root=str(tmp_path), name=engine)
        found[engine] = [
            line["train/loss"] for line in lines(result.run_dir) if "train/loss" in line
        ]
    assert found["compiled"] == pytest.approx(found["eager"], rel=1e-4)


@pytest.mark.usefixtures("_traced_only")
def test_auto_compiles_a_long_run_writes_that_down_and_says_the_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter([0.02, 0.01])
    monkeypatch.setattr(Trial, "seconds", lambda trial, forward: next(taken))
    monkeypatch.setattr(network, "compile_seconds", lambda module: 0.0)
    trainer = make(engine="auto")
    result = trainer.fit(root=str(tmp_path), name="long")
    assert "engine: compiled" in (tmp_path / "long" / "config.yaml").read_text()
    told = engine_notes(result.run_dir)
    assert "10 ms instead of 20 ms (2.00 times as fast)" in told[0]
    # A resumed run does as the first one did, and tries nothing again.
    again = make(engine="auto", max_epochs=3)
    again.fit(root=str(tmp_path), name="long", resume=True)
    assert again.config.engine == "compiled"


class Indexed(ludus.Model):
    """Looks at the number of the batch."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        result = super().training_step(batch, batch_idx)
        return result | {"loss": result["loss"] * (1 + batch_idx)}


class AnyArguments(ludus.Model):
    """May look at it."""

    def training_step(self, *given: Any) -> dict[str, Tensor]:
        return super().training_step(*given)


class Unindexed(ludus.Model):
    """Does not."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        return {"loss": self.module(batch[0]).square().mean()}


def test_a_step_that_looks_at_the_number_of_the_batch_is_not_compiled(tmp_path: Path) -> None:
    assert uses_batch_index(Indexed(Own()))
    assert uses_batch_index(AnyArguments(Own()))
    assert not uses_batch_index(Unindexed(Own()))
    with pytest.raises(
        ConfigError, match="'engine' is compiled, but its training_step uses batch_idx"
    ):
        make(Indexed(Own())).fit(root=str(tmp_path), name="indexed")
    trainer = make(Indexed(Own()), engine="auto")
    trainer.fit(root=str(tmp_path), name="auto")
    assert trainer.config.engine == "eager"


class Images(nn.Module):
    """A convolution of somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(4, 8, 3), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x.view(-1, 4, 4, 4))).mean((2, 3)))


DIGITS = {"kind": "digits", "validation_fraction": 0.0, "test_fraction": 0.9, "standardise": False}


@pytest.mark.parametrize("engine", ["eager", "tape"])
def test_channels_last_learns_the_same_and_is_saved_by_name_as_ever(
    engine: str, tmp_path: Path
) -> None:
    found = {}
    for order in ("contiguous", "channels_last"):
        torch.manual_seed(1)
        layers = (nn.Unflatten(1, (4, 4, 4)), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten())
        images = Images() if engine == "eager" else nn.Sequential(*layers, nn.Linear(32, 10))
        trainer = make(
            images,
            data=DIGITS,
            engine=engine,
            memory_format=order,
            evaluate_every_epochs=0,
            max_epochs=1,
        )
        result = trainer.fit(root=str(tmp_path), name=order)
        conv = next(one for one in trainer.model.module.modules() if isinstance(one, nn.Conv2d))
        is_last = conv.weight.stride() == (36, 1, 12, 4)
        assert is_last == (order == "channels_last")
        assert trainer.optimizer.state_dict()["moments"][0] is not None
        found[order] = [
            line["train/loss"] for line in lines(result.run_dir) if "train/loss" in line
        ]
    assert found["channels_last"] == pytest.approx(found["contiguous"], rel=1e-4)


def channels_last() -> Trainer:
    torch.manual_seed(1)
    images = Images().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return make(
        images, data=DIGITS, engine="eager", memory_format="auto", evaluate_every_epochs=0, max_epochs=1
    )  # fmt: skip


def test_a_network_that_was_given_with_channels_last_stays_so_over_a_kill(tmp_path: Path) -> None:
    trainer = channels_last()
    trainer.fit(root=str(tmp_path), name="whole")
    assert trainer.config.memory_format == "channels_last"
    assert trainer.model.module.conv.weight.stride() == (36, 1, 12, 4)
    trainers.check_kill_anywhere(channels_last, tmp_path / "kills", max_kills=2)


def plain_and_clipped() -> Trainer:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 3))
    return make(layers, engine="auto", gradient_checkpointing=["0"], max_grad_norm=0.01)


def test_gradients_of_a_large_network_are_not_kept_and_its_runs_resume_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(engine="eager")
    trainer.prepare(max_steps=None)
    assert trainer.update.flat.keeps_gradients
    monkeypatch.setattr(build, "_LARGE", 1)
    for engine, keeps in (("eager", False), ("auto", False), ("tape", True)):
        trainer = make(engine=engine)
        trainer.prepare(max_steps=None)
        assert trainer.update.flat.keeps_gradients is keeps
    # Of layers of torch's alone, which auto calls eagerly here, the norm is summed as in the first process.
    trainers.check_kill_anywhere(plain_and_clipped, tmp_path / "plain", max_kills=2)
    # Every other batch waits in the gradient for the next.
    trainers.check_kill_anywhere(lambda: make(engine="eager", accumulate=2), tmp_path, max_kills=3)
