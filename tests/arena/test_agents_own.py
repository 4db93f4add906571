"""Agents of a user's own: buffers, dropout, batch norm, frozen parts, Python-side state, no parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ludus
from ludus.arena.agents.agent import Agent, AgentOutput, AgentParameters
from ludus.arena.agents.body import Rows
from ludus.arena.scenario import ObservationSizes
from ludus.config.registry import register
from ludus.core.runtime import InMemoryRuntime
from ludus.testing import trainers
from tests.arena.sections import ALWAYS, NEVER, parts
from tests.arena.small import MLP, small_arena
from tests.arena.small_solo import small_solo

Part = Literal["plain", "batch_norm", "dropout", "frozen", "counting", "extra", "empty"]


class OwnParameters(AgentParameters):
    """An agent of a script's own."""

    kind: Literal["tests_own"]
    """This one."""
    part: Part
    """What is odd about it."""


class Counting(nn.Module):
    """Counts, in plain Python, how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + self.calls % 7)


class Extra(Counting):
    """The same, saved as extra state."""

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def middle(part: Part) -> nn.Module:
    found: dict[str, Any] = {
        "batch_norm": lambda: nn.BatchNorm1d(8),
        "dropout": lambda: nn.Dropout(0.5),
        "counting": Counting,
        "extra": Extra,
    }
    return found.get(part, nn.Identity)()  # type: ignore[no-any-return]


@register("arena_agent", "tests_own")
class Own(Agent):
    Config = OwnParameters

    def __init__(
        self,
        params: OwnParameters,
        seen: ObservationSizes,
        *,
        name: str,
        trainer_type: str,
        use_shared_body: bool,
        body: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.params, self.sizes = params, (seen.num_channels, seen.num_symbols)
        self.net: nn.Module | None = None
        if params.part == "empty":
            return
        (bits,) = seen.shapes["bits"]
        C, V = self.sizes
        self.net = nn.Sequential(nn.Linear(bits, 8), middle(params.part), nn.Tanh())
        self.out = nn.Linear(8, 3 + C * V + 1 + 2)
        if params.part == "frozen":
            self.net.requires_grad_(False)

    def _all(self, rows: Rows) -> Tensor:
        C, V = self.sizes
        if self.net is None:
            return rows["bits"].new_zeros(len(rows["bits"]), 3 + C * V + 1 + 2)
        found: Tensor = self.out(self.net(rows["bits"]))
        return found

    def policy(self, rows: Rows) -> AgentOutput:
        C, V = self.sizes
        found = self._all(rows)
        return AgentOutput(found[:, :3], found[:, 3 : 3 + C * V].reshape(-1, C, V))

    def value(self, rows: Rows) -> Tensor:
        return self._all(rows)[:, -3]

    def policy_and_value(self, rows: Rows) -> tuple[AgentOutput, Tensor]:
        C, V = self.sizes
        found = self._all(rows)
        said = AgentOutput(found[:, :3], found[:, 3 : 3 + C * V].reshape(-1, C, V))
        return said, found[:, -3]

    def solo(self, rows: Rows) -> Tensor:
        return self._all(rows)[:, -2:]


def own(part: Part, schedule: dict[str, Any] = ALWAYS) -> dict[str, Any]:
    return {"kind": "tests_own", "part": part, "update_schedule": schedule, "load": None}


def alone(part: Part, **changed: Any) -> Any:
    # BatchNorm would refuse a batch of one.
    changed = {"solo_agent.batch_size": 10, **changed}
    return small_solo(agents={"verifier": own(part), "prover": parts(MLP)}, **changed)


def meeting(part: Part, schedule: dict[str, Any] = ALWAYS, **changed: Any) -> Any:
    return small_arena(agents={"verifier": parts(MLP), "prover": own(part, schedule)}, **changed)


ODD: tuple[Part, ...] = ("batch_norm", "dropout", "frozen", "extra")


@pytest.mark.parametrize("part", ODD)
@pytest.mark.parametrize("make", [alone, meeting])
def test_a_run_with_an_agent_of_ones_own_resumes_exactly(
    part: Part, make: Any, tmp_path: Path
) -> None:
    config = make(part, engine="eager", max_iterations=2, keep_every_iterations=0)
    trainers.check_kill_anywhere(lambda: ludus.build_trainer(config), tmp_path, max_kills=2)


@pytest.mark.parametrize("make", [alone, meeting])
def test_what_no_checkpoint_holds_is_said_to_make_a_run_inexact(make: Any, tmp_path: Path) -> None:
    result = ludus.build_trainer(make("counting")).fit(root=str(tmp_path))
    assert not result.exact
    assert any("calls" in reason for reason in result.inexact_because)
    kept = ludus.build_trainer(make("extra")).fit(root=str(tmp_path), name="kept")
    assert kept.exact


@pytest.mark.parametrize("make", [alone, meeting])
def test_parts_that_a_script_froze_do_not_move_and_the_rest_does(make: Any) -> None:
    trainer: Any = ludus.build_trainer(make("frozen"))
    trainer.prepare(max_steps=None)
    before = {name: one.clone() for name, one in trainer.weights().items()}
    trainer.fit(runtime=InMemoryRuntime)
    moved = {name for name, one in trainer.weights().items() if not torch.equal(one, before[name])}
    assert not any(".net." in name for name in moved)
    assert any(name.endswith(".out.weight") for name in moved)


@pytest.mark.parametrize("make", [alone, meeting])
def test_an_agent_without_parameters_is_trained_beside(make: Any, tmp_path: Path) -> None:
    result = ludus.build_trainer(make("empty")).fit(root=str(tmp_path))
    assert result.status == "finished"


def test_batch_norm_takes_in_what_an_agent_sees_and_is_used_as_it_acts() -> None:
    trainer: Any = ludus.build_trainer(meeting("batch_norm"))
    trainer.fit(runtime=InMemoryRuntime)
    agent = trainer.agents.member("prover")
    norm = agent.net[1]
    assert int(norm.num_batches_tracked) == trainer.run.counters["opt_steps"]
    assert not norm.training
    rows = {"bits": torch.rand(4, 4)}
    assert torch.equal(agent.value(rows)[:2], agent.value({"bits": rows["bits"][:2]}))


@pytest.mark.parametrize("engine", ["eager", "tape"])
@pytest.mark.parametrize("is_alone", [False, True])
def test_the_statistics_of_a_frozen_agent_stay_too(engine: str, is_alone: bool) -> None:
    agents = {"verifier": parts(MLP), "prover": own("batch_norm", NEVER)}
    make = small_solo if is_alone else small_arena
    trainer: Any = ludus.build_trainer(make(agents=agents, engine=engine))
    trainer.fit(runtime=InMemoryRuntime)
    norm = trainer.agents.member("prover").net[1]
    assert torch.equal(norm.running_mean, torch.zeros(8))
    assert int(norm.num_batches_tracked) == 0


def test_dropout_is_on_only_while_agents_learn_alone() -> None:
    trainer: Any = ludus.build_trainer(alone("dropout"))
    modes: list[tuple[bool, bool]] = []

    def watch(module: nn.Module, inputs: Any) -> None:
        modes.append((module.training, torch.is_grad_enabled()))

    class Hooks:
        def before_train(self) -> None:
            trainer.agents.member("verifier").net[1].register_forward_pre_hook(watch)

    trainer.add(Hooks())
    trainer.fit(runtime=InMemoryRuntime)
    assert set(modes) == {(True, True), (False, False)}


def test_a_solo_answer_of_the_wrong_shape_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Own, "solo", lambda self, rows: functional.one_hot(rows["round"], 3))
    with pytest.raises(
        ludus.LudusError, match=r"solo answer of agent 'verifier' has shape .*, 3\)"
    ):
        ludus.build_trainer(alone("plain", engine="eager")).fit(runtime=InMemoryRuntime)
