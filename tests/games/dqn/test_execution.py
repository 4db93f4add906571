"""How updates and games of a role are executed: which are captured, which are not, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.plan import render
from ludus.games.dqn import execution
from ludus.games.trainers.fused_dqn import DQNTrainer
from ludus.nn.engines.choice import Chosen
from tests.games.dqn.small import prepared, small_dqn

ROLES = ("host", "agent")
MORIN = {"kind": "morin", "weights": [3.0, 1.0, 2.0]}


class Stands:
    """Stands for a CUDA graph, where there is no GPU: the work is called, by the same generator."""

    made: list[Stands]

    def __init__(self, work: Callable[[], None], device: Any, **options: Any) -> None:
        self.work, self.options, self.calls = work, options, 0
        Stands.made.append(self)

    def __call__(self) -> None:
        self.calls += 1
        self.work()


@pytest.fixture(autouse=True)
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    Stands.made = []
    monkeypatch.setattr(execution, "Graphed", Stands)


def told(trainer: DQNTrainer) -> list[str]:
    """Let the updates be captured, and return what is told of the games then."""
    notes = []
    for role, learner in trainer.learners.items():
        learner.execute_by(Chosen("graph", lambda method: method, "graph", []))
        notes += trainer._execution._look(role)
    return notes


def rows(trainer: DQNTrainer, role: str) -> dict[str, Tensor]:
    replay = trainer.learners[role].replay
    return {"total": replay.total_pushed, **replay._rings}


@pytest.mark.parametrize("sparring", [[], [{"player": MORIN, "share": 0.5}]])
def test_what_is_collected_by_a_graph_is_what_is_collected_without(sparring: Any) -> None:
    config = small_dqn(**{"host.sparring": sparring})
    called, captured = prepared(config), prepared(config)
    assert told(captured) == []
    for seed, rate in enumerate((0.0, 0.5, 1.0)):
        for trainer in (called, captured):
            for role in ROLES:
                trainer.learners[role].er_scheduler = lambda step, rate=rate: rate  # type: ignore
                trainer._execution.collect(role, seed)
    assert [made.calls for made in Stands.made] == [3, 3]
    for role in ROLES:
        wanted, found = rows(called, role), rows(captured, role)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_graph_draws_from_the_generator_that_is_seeded_for_each_collecting() -> None:
    trainer = prepared()
    told(trainer)
    (generator,) = Stands.made[0].options["generators"]
    trainer._execution.collect("host", 17)
    assert generator.initial_seed() == 17
    assert "collecting the games of the host" in Stands.made[0].options["what"]


class First:
    """A script's own player."""

    def act(self, obs: Tensor, legal: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.zeros(len(obs), dtype=torch.int64) if legal is None else legal.int().argmax(1)


class OwnNet(nn.Sequential):
    """A network whose class is a script's own."""


class OwnRollOut(DQNTrainer):
    """Collects in its own way."""

    def _roll_out(self, *given: Any, **options: Any) -> Any:
        return super()._roll_out(*given, **options)


def own_net() -> nn.Module:
    return OwnNet(nn.Linear(21, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("changed", "given", "why"),
    [
        ({}, {"reward_func": lambda role, obs, then, done: done.float()}, "script's own function"),
        ({"agent": None, "opponent": "given"}, {"agent_net": First()}, "player of your own"),
        ({"engine": "eager"}, {"agent_net": own_net()}, "OwnNet is neither torch's nor ludus's"),
    ],
)
def test_what_a_script_brings_is_not_captured_unless_it_says_that_it_may_be(
    changed: dict[str, Any], given: dict[str, Any], why: str
) -> None:
    trainer = prepared(small_dqn(**changed), **given)
    notes = told(trainer)
    assert notes
    assert all(why in note and "without a CUDA graph" in note for note in notes)
    before = int(trainer.learners["host"].replay.total_pushed)
    trainer._execution.collect("host", 1)
    assert Stands.made == []
    assert int(trainer.learners["host"].replay.total_pushed) > before


def test_a_roll_out_of_a_subclass_is_not_captured() -> None:
    trainer = OwnRollOut(small_dqn())
    trainer.prepare(max_steps=None)
    assert "OwnRollOut has a _roll_out of its own" in told(trainer)[0]


def test_a_network_in_the_place_of_another_is_captured_anew_and_told_of_if_it_cannot_be() -> None:
    trainer = prepared(small_dqn(engine="eager"))
    told(trainer)
    notes: list[str] = []
    trainer.run.tell = lambda note, event: notes.append(note)  # type: ignore[method-assign,assignment]
    trainer._execution.collect("host", 1)
    trainer.learners["agent"].take_net(nn.Sequential(nn.Linear(21, 4), nn.ReLU(), nn.Linear(4, 3)))
    trainer._execution.collect("host", 2)
    assert [made.calls for made in Stands.made] == [1, 0, 1]
    trainer.learners["agent"].take_net(own_net())
    trainer._execution.collect("host", 3)
    assert [made.calls for made in Stands.made] == [1, 0, 1]
    assert len(notes) == 1
    assert "OwnNet" in notes[0]
    trainer._execution.collect("host", 4)
    assert len(notes) == 1


def test_what_players_remember_after_a_captured_collecting_is_nothing() -> None:
    trainer = prepared(small_dqn(**{"host.sparring": [{"player": MORIN, "share": 1.0}]}))
    told(trainer)
    trainer._execution.collect("host", 1)
    ((morin, _),) = trainer.seating.sparring["host"]
    assert morin.state_dict() == {"weights": None}  # type: ignore[attr-defined]


def test_one_engine_is_chosen_for_both_roles() -> None:
    trainer = prepared(small_dqn(engine="auto"), agent_net=own_net())
    assert trainer.config.engine == "tape"
    notes = [note for learner in trainer.learners.values() for note in learner.engine_notes]
    assert any(note.startswith("agent:") for note in notes)
    assert len(notes) == len(set(notes))


def test_the_printed_plan_says_which_stages_are_cuda_graphs() -> None:
    trainer = prepared()
    assert "CUDA graph" not in render(trainer.plan())
    told(trainer)
    lines = [line.strip() for line in render(trainer.plan()).splitlines() if "CUDA" in line]
    assert lines == ["fit (a CUDA graph)", "collect (every 2 rounds, a CUDA graph)"] * 2


def test_a_network_that_is_put_in_during_a_run_and_cannot_be_repeated_is_told_of() -> None:
    trainer = prepared(small_dqn(engine="tape"))
    notes: list[str] = []
    trainer.run.tell = lambda note, event: notes.append(note)  # type: ignore[method-assign,assignment]
    trainer.replace_nets(agent_net=own_net())
    assert len(notes) == 1
    assert notes[0].startswith("agent: the update is not taped: OwnNet")
