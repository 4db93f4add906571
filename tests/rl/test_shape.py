"""The shape of the room: an agent is whole in one file, and no hierarchy is deep."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.config import rooms
from ludus.config.registry import find
from ludus.rl.agent import Agent
from ludus.rl.config import RLConfig
from ludus.rl.plans import without_learn
from ludus.rl.rl_trainer import RLTrainer

KINDS = ("dqn", "iqn", "ppo", "sac")


def chain(cls: type[Any], base: type[Any]) -> list[str]:
    """Return the classes from this one up to its base, mixins left out."""
    return [found.__name__ for found in cls.__mro__ if issubclass(found, base)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_is_whole_in_one_file_with_its_config_and_its_trainer(kind: str) -> None:
    trainer = find("trainer", kind)
    place = f"ludus.rl.agents.{kind}"
    assert rooms.listed("trainer")[kind] == place
    assert {trainer.__module__, trainer.Config.__module__, trainer.Agent.__module__} == {place}


@pytest.mark.parametrize("kind", KINDS)
def test_config_and_agent_stand_one_level_below_their_base_and_the_trainer_two(kind: str) -> None:
    trainer = find("trainer", kind)
    name = kind.title()
    assert chain(trainer.Config, RLConfig) == [f"{name}Config", "RLConfig"]
    assert chain(trainer.Agent, Agent) == [name, "Agent"]
    between = "RolloutTrainer" if kind == "ppo" else "StepRLTrainer"
    assert chain(trainer, RLTrainer) == [f"{name}Trainer", between, "RLTrainer"]


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        ([["learn", 0, 1], ["step", 3, 6]], [["step", 3, 6]]),
        ([["learn", 0, 1], ["step", 3, 6], ["train_step", 0, None]],
         [["step", 3, 6], ["train_step", 0, None]]),
        ([["learn", 0, None]], [["step", 0, None]]),
        ([["learn", 1, 1]], [["evaluate", 0, None]]),
        ([["record", 0, None]], [["record", 0, None]]),
        ([], []),
    ],
)  # fmt: skip
def test_a_cursor_in_the_loop_learn_of_older_runs_finds_its_place(
    saved: list[Any], now: list[Any]
) -> None:
    start = [["train", 0, 1], ["epoch", 2, None]]
    assert without_learn([*start, *saved]) == [*start, *now]
    assert without_learn([]) == []
