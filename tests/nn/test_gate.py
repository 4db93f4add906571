"""Compiled or taped is only what is known to do the same each time; of anything else a sentence says why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import ludus
from ludus import Model, Trainer
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.engines import compiled, gate
from ludus.nn.engines.gate import why_not_repeatable
from ludus.nn.engines.tape import Taped
from ludus.rl.agents.dqn import Dqn
from tests.rl.odd_networks import Branch, Counter, engine_of, fitted, odd, prepared
from tests.supervised.conftest import QUIET, WINE

STEADY: dict[str, Any] = {"learning_rate_schedule": {"kind": "constant", "warmup_steps": 0}}
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")


def hooked() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *given: None)
    return layer


def hooked_gradient() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.weight.register_hook(lambda gradient: None)
    return layer


def hooked_sum() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.bias.register_post_accumulate_grad_hook(lambda weight: None)
    return layer


def patched() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x  # type: ignore[method-assign]
    return layer


class Stranger(nn.Linear):
    """From outside."""


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout()), None),
        (nn.Sequential(Stranger(2, 2)), "Stranger is neither torch's nor ludus's"),
        (hooked(), "a Linear has hooks"),
        (nn.Sequential(hooked_gradient()), "a parameter of a Linear has hooks"),
        (hooked_sum(), "a parameter of a Linear has hooks"),
        (patched(), "was replaced"),
        (nn.BatchNorm1d(2, momentum=None), "momentum=None"),
    ],
)
def test_the_gate_knows_torch_and_ludus_and_nothing_else(module: Any, reason: str | None) -> None:
    found = why_not_repeatable(Dqn.__new__(Dqn), [module])
    assert found is None if reason is None else reason in (found or "")


def test_the_gate_sees_a_hook_for_all_modules() -> None:
    handle = register_module_forward_hook(lambda *given: None)
    try:
        found = why_not_repeatable(Dqn.__new__(Dqn), [nn.Linear(2, 2)])
    finally:
        handle.remove()
    assert found == "there are hooks for all modules, which would be called once only"


def test_a_subclass_of_what_was_vouched_for_is_not_vouched_for() -> None:
    class Known(nn.Linear):
        is_repeatable = True

    class More(Known):
        pass

    owner = Dqn.__new__(Dqn)
    assert why_not_repeatable(owner, [Known(2, 2)]) is None
    assert why_not_repeatable(owner, [More(2, 2)]) is not None


@pytest.fixture
def long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run be long enough for the compiler, and trace only."""
    monkeypatch.setattr(Dqn, "worth_compiling", 1)
    monkeypatch.setattr("ludus.fit.update.ModelUpdate.worth_compiling", 1)
    monkeypatch.setattr(compiled, "BACKEND", "eager")


@pytest.mark.usefixtures("long_runs")
@pytest.mark.parametrize(
    ("part", "known", "why", "engine", "count"),
    [
        ("counter", False, "neither compiled nor taped: Odd is neither torch's", "eager", 1),
        # That it looks at a number shows only when it is taped, so that is told later.
        ("branch", True, "not compiled: torch's compiler cannot take", "tape", 2),
    ],
)
def test_auto_does_not_compile_what_is_not_known_and_says_why(
    tmp_path: Path, part: str, known: bool, why: str, engine: str, count: int
) -> None:
    trainer = fitted(odd("dqn", part, known=known, engine="auto"), tmp_path)
    assert trainer.config.engine == engine
    assert f"engine: {engine}" in (tmp_path / "run" / "config.yaml").read_text()
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    told = [e["reason"] for e in map(json.loads, events) if e["event"] == "engine"]
    assert told[0].startswith(f"the update is {why}")
    assert len(told) == count


@pytest.mark.usefixtures("long_runs")
@pytest.mark.parametrize(("part", "known"), [("counter", False), ("branch", True)])
def test_true_is_refused_in_one_sentence_before_training(part: str, known: bool) -> None:
    with pytest.raises(ConfigError, match=r"'engine' is compiled, but .*; set engine to auto"):
        prepared(odd("dqn", part, known=known, engine="compiled"))


@pytest.mark.usefixtures("long_runs")
@pytest.mark.parametrize("engine", ["tape", "compiled"])
@pytest.mark.parametrize("part", ["counter", "extra"])
def test_a_network_that_says_it_is_repeatable_and_is_not_is_found_out(
    tmp_path: Path, part: str, engine: str
) -> None:
    """Its counter would stand still, saved or not."""
    with pytest.raises(LudusError, match=r"Counter changes calls as it runs, yet says"):
        fitted(odd("dqn", part, known=True, engine=engine), tmp_path)


def test_a_branch_that_is_vouched_for_is_called_every_time(tmp_path: Path) -> None:
    trainer = fitted(odd("dqn", "branch", known=True), tmp_path)
    taped = engine_of(trainer.agent)
    assert isinstance(taped, Taped)
    assert not taped.is_possible
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    told = [e["reason"] for e in map(json.loads, events) if e["event"] == "engine"]
    assert told == [
        "the update is not taped: it reads numbers out of tensors as it goes, so it may differ each"
        " time; it is called eagerly"
    ]


@pytest.mark.parametrize("kind", ["dqn", "sac"])
def test_state_that_no_checkpoint_holds_makes_a_run_not_exact(tmp_path: Path, kind: str) -> None:
    result = fitted(odd(kind, "counter"), tmp_path).result
    assert not result.exact
    assert (
        "Counter changes calls as it runs, which no checkpoint holds" in result.inexact_because[0]
    )
    assert fitted(odd(kind, "extra"), tmp_path, "saved").result.exact


class Asking(Model):
    """A model of one's own that counts."""

    num_asked = 0

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        self.num_asked += 1
        return super().training_step(batch, batch_idx)


def supervised(network: nn.Module | Model, **changes: Any) -> Trainer:
    config = ludus.example("supervised").replace(
        **{
            "data": WINE,
            "model": None,
            "batch_size": 32,
            "max_epochs": 2,
            **STEADY,
            **QUIET,
            **changes,
        }
    )
    trainer = Trainer(config)
    trainer.set_model(network)
    return trainer


def between(*middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(13, 8), *middle, nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.usefixtures("long_runs")
def test_a_supervised_run_keeps_to_the_same_gate(tmp_path: Path) -> None:
    class Unknown(Branch):
        pass

    with pytest.raises(ConfigError, match="'engine' is compiled, but"):
        supervised(between(Branch()), engine="compiled").prepare(max_steps=None)
    trainer = supervised(between(Branch()), engine="auto")
    trainer.prepare(max_steps=None)
    assert trainer.config.engine == "tape"
    assert re.match("the update is not compiled", trainer.update.engine_notes[0])
    for network in (between(Unknown()), Asking(between())):
        # Nobody vouches for these: they are not repeated, and compiled where that pays.
        trainer = supervised(network, engine="auto")
        trainer.prepare(max_steps=None)
        assert trainer.config.engine == "eager"
        assert "the network is not compiled" in trainer.update.engine_notes[0]
        assert "is neither torch's nor ludus's" in trainer.update.engine_notes[1]
    trainer = supervised(between(nn.BatchNorm1d(8)), engine="auto")
    trainer.prepare(max_steps=None)
    assert trainer.config.engine == "compiled"


def test_a_supervised_model_with_state_of_its_own_makes_a_run_not_exact(tmp_path: Path) -> None:
    for name, network in (("net", between(Counter())), ("model", Asking(between()))):
        result = supervised(network, engine="eager").fit(root=str(tmp_path), name=name)
        assert not result.exact
        assert "as it runs, which no checkpoint holds" in result.inexact_because[0]


def test_the_gate_lists_no_layer_the_compiler_refuses() -> None:
    assert gate.is_plain([nn.Sequential(nn.Linear(2, 2), nn.Tanh())])
    assert not gate.is_plain([nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2))])
