"""Envs that keep something over their whole life."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np

import ludus
from ludus.config.sections import StrictConfig
from ludus.envs.config import WrapperSection
from tests.faults.hidden_state.case import case
from tests.rl.random_walks import RandomWalk
from tests.rl.small import small

Way = Literal["attribute", "generator", "class", "global", "entropy"]
STEPS = [0]


class Config(StrictConfig):
    """A walk, and where it keeps something."""

    kind: Literal["tests_hiding", "tests_half_saved"]
    """Which walk."""
    length: int
    """How many steps an episode has."""
    way: Way
    """Where it keeps something."""
    wrappers: list[WrapperSection]
    """What stands around it."""


@ludus.register("env", "tests_hiding")
class Hiding(RandomWalk):
    """What it shows depends on what it keeps from episode to episode."""

    Config = Config  # type: ignore[assignment]
    steps_ever: ClassVar[list[int]] = [0]

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.way, self.ever, self.own = config.way, 0, np.random.default_rng(0)

    def _kept(self) -> float:
        self.ever += 1
        match self.way:
            case "attribute":
                return self.ever
            case "generator":
                return self.own.normal()
            case "class":
                self.steps_ever[0] += 1
                return self.steps_ever[0]
            case "global":
                STEPS[0] += 1
                return STEPS[0]
        return os.urandom(1)[0] / 256

    def step(self, action: Any) -> Any:
        self.place = self.place + self._kept()
        return super().step(action)


@ludus.register("env", "tests_half_saved")
class HalfSaved(Hiding):
    """It hands out a state that leaves out what it keeps."""

    def get_state(self) -> Any:
        random = self.np_random.bit_generator.state
        return {"place": self.place.copy(), "num_steps": self.num_steps, "random": random}

    def set_state(self, state: Any) -> None:
        self.place, self.num_steps = state["place"].copy(), state["num_steps"]
        self.np_random.bit_generator.state = state["random"]


def walk(way: Way, kind: str, path: Path) -> Any:
    STEPS[:] = [0]
    Hiding.steps_ever[:] = [0]
    section = {"kind": kind, "length": 9, "way": way, "wrappers": []}
    config = small("ppo", env=section, **{"settings.checkpoint.every_stages": 3})
    return ludus.build_trainer(config)


for way in get_args(Way):
    case(f"env: {way}", "env", "differ")(partial(walk, way, "tests_hiding"))
case("env: get_state that leaves something out", "env", "differ")(
    partial(walk, "attribute", "tests_half_saved")
)
