"""A trainer that climbs a hill: its score follows from its config and seed, a step at a time.

It is a plugin, so that worker processes know it. By its mood a run goes wrong in some way.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch

from ludus.config.base import StrictConfig, TrainerConfig
from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.seeds import generator
from ludus.session.trainer import Trainer

Mood = Literal["well", "raises", "dies", "hangs", "eats", "dines", "silent", "nan"]


class Slope(StrictConfig):
    """A section that is chosen whole."""

    kind: Literal["plain", "steep"]
    """How steep it is."""
    grade: float
    """By how much."""


class HillConfig(TrainerConfig):
    """Where it stands, and how it behaves."""

    may_change: ClassVar[tuple[str, ...]] = ("x", "y", "mood", "size")

    x: float
    """Where it stands: best at 0.3."""
    y: float
    """Where it stands the other way: best at 0.6."""
    size: int
    """A whole number, best at 8."""
    noise: float
    """How much the seed changes the score."""
    slope: Slope
    """The slope."""
    max_steps: int
    """How many steps it takes."""
    mood: Mood
    """What goes wrong, at its third step."""


class Climber:
    """What a climb changes."""

    def __init__(self, seed: int) -> None:
        self.generator = generator(seed, "hill")
        self.height = torch.zeros(3)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "height": self.height}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.height = state["height"].clone()


@register_trainer("hill")
class HillTrainer(Trainer):
    """Climbs."""

    Config = HillConfig

    def prepare(self, *, max_steps: int | None) -> None:
        self.climber = Climber(self.config.seed)

    def parts(self) -> Mapping[str, Stateful]:
        return {"climber": self.climber}

    def plan(self) -> Repeat:
        climb = Stage(name="climb", work=self.climb)
        step = Repeat(name="step", times=self.config.max_steps, counter="opt_steps", body=[climb])
        return Repeat(name="train", times=1, body=[step])

    def climb(self, run: Run) -> Mapping[str, Any]:
        config, taken = self.config, run.counters["opt_steps"] + 1
        if taken == 3:
            go_wrong(config.mood)
        away = (config.x - 0.3) ** 2 + (config.y - 0.6) ** 2 + ((config.size - 8) / 8) ** 2
        luck = torch.randn(3, generator=self.climber.generator)
        self.climber.height = 0.5 * self.climber.height + 0.1 * luck
        score = taken - 10 * away * taken + config.noise * float(self.climber.height.sum())
        score += config.slope.grade
        if config.mood == "nan":
            score = float("nan")
        if config.mood != "silent":
            run.log.log("hill/score", score)
        run.log.log("hill/luck", float(luck.sum()))
        run.log.write(run)
        return {}


def go_wrong(mood: Mood) -> None:
    """Do what a mood says."""
    if mood == "raises":
        raise ValueError("the rope broke")
    if mood == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if mood == "hangs":
        while True:
            time.sleep(0.01)
    if mood == "eats":
        torch.zeros(1 << 38)
    if mood == "dines":
        torch.empty(1 << 30)  # 4 GiB that nothing is written to
