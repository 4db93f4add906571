"""The shape of the room: an agent is whole in one file, and no hierarchy is deep."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.config import rooms
from ludus.config.registry import find
from ludus.rl.agent import Agent
from ludus.rl.config import RLConfig
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
