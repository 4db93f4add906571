"""The shape of the room: an agent is whole in one file, and no hierarchy is deep."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config import families
from ludus.config.base import from_data
from ludus.config.registry import find
from ludus.rl.agent import Agent
from ludus.rl.config import RLConfig
from ludus.rl.plan import without_learn
from ludus.rl.trainer import RLTrainer
from ludus.testing.differences import ending_of
from tests.rl.small import small

KINDS = ("dqn", "iqn", "ppo", "sac")


def chain(cls: type[Any], base: type[Any]) -> list[str]:
    """Return the classes from this one up to its base, mixins left out."""
    return [found.__name__ for found in cls.__mro__ if issubclass(found, base)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_is_whole_in_one_file_with_its_config_and_its_trainer(kind: str) -> None:
    trainer = find("trainer", kind)
    place = f"ludus.rl.agents.{kind}"
    assert families.listed("trainer")[kind] == place
    assert {trainer.__module__, trainer.Config.__module__, trainer.Agent.__module__} == {place}


@pytest.mark.parametrize("kind", KINDS)
def test_config_and_agent_stand_one_level_below_their_base_and_the_trainer_two(kind: str) -> None:
    trainer = find("trainer", kind)
    name = kind.title()
    assert chain(trainer.Config, RLConfig) == [f"{name}Config", "RLConfig"]
    assert chain(trainer.Agent, Agent) == [name, "Agent"]
    between = "RolloutTrainer" if kind == "ppo" else "StepRLTrainer"
    assert chain(trainer, RLTrainer) == [f"{name}Trainer", between, "RLTrainer"]


@pytest.mark.parametrize("kind", KINDS)
def test_four_classes_of_ludus_stand_above_a_trainer_mixins_counted(kind: str) -> None:
    above = [one for one in find("trainer", kind).__mro__[1:] if one is not object]
    assert len(above) == 4, above


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


def test_the_agent_that_the_documents_teach_is_trained_and_goes_on_after_a_pause(
    tmp_path: Path,
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "add-your-own.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (block,) = [one for one in blocks if "class QLearning(" in one]
    path = tmp_path / "taught.py"
    path.write_text(block.replace('"q_learning"', '"q_learning_taught"'))
    trainer = runpy.run_path(str(path))["QLearningTrainer"]
    data = small("dqn", normalise=None).model_dump() | {"kind": "q_learning_taught", "epsilon": 0.1}
    for key in ("target", "exploration", "double", "dueling", "huber"):
        del data[key]
    config = from_data(data, source="taught.yaml")

    class Paused(trainer):  # type: ignore[misc]
        def after_train_step(self, run: ludus.core.Run) -> None:
            run.interrupted = run.counters["opt_steps"] == 7

    assert trainer(config).fit(root=str(tmp_path), name="whole").status == "finished"
    assert Paused(config).fit(root=str(tmp_path), name="paused").status == "interrupted"
    assert trainer(config).fit(root=str(tmp_path), name="paused", resume=True).status == "finished"
    assert ending_of(tmp_path / "paused").state == ending_of(tmp_path / "whole").state
