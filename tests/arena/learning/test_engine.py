"""Which engine `auto` chooses for an update: a long run of agents that surely compile is compiled."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.arena.agents.agent import Agent
from ludus.arena.learning.update import ArenaUpdate
from tests.arena.objectives.rows import prepared


@pytest.fixture(autouse=True)
def soon_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # 3 iterations of 2 epochs over 8 episodes of 2 steps.
    monkeypatch.setattr(ArenaUpdate, "worth_compiling", 3 * 2 * 16)


@pytest.mark.parametrize(("kind", "iterations"), [("vanilla_ppo", 3), ("reinforce", 6)])
def test_a_long_run_is_compiled_and_a_shorter_one_taped(kind: str, iterations: int) -> None:
    assert prepared(kind, engine="auto", max_iterations=iterations).config.engine == "compiled"
    shorter = prepared(kind, engine="auto", max_iterations=iterations - 1)
    assert shorter.config.engine == "tape"


def test_what_takes_second_derivatives_is_never_compiled_unasked() -> None:
    assert prepared("spg", engine="auto", **{"rl.minibatch_size": 16}).config.engine == "tape"


def test_a_loss_derived_from_one_that_compiles_is_not_compiled_unasked() -> None:
    trainer = prepared("vanilla_ppo", engine="auto")
    objective: Any = trainer.update.learned.objective
    derived = type("Derived", (type(objective),), {"is_repeatable": True})
    objective.__class__ = derived
    told: list[str] = []
    engine = trainer.update.choose("auto", 10**9, tell=told.append)
    assert (engine, trainer.update.engine_notes, told) == ("tape", [], [])


class Plain(Agent):
    is_repeatable = True


def test_an_agent_of_a_script_is_not_compiled_unasked() -> None:
    trainer = prepared("vanilla_ppo", engine="auto")
    trainer.agents.members["extra"] = Plain()
    assert trainer.update.choose("auto", 10**9) == "tape"
