"""Every way to hide a count, in a callback; and what a trainer, an evaluator and a recorder may hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stateful
from tests.faults.hidden_state.case import case
from tests.faults.hidden_state.ways import WAYS, Draw
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_hiding")
class Hiding(ToyTrainer):
    """Six rounds of one stage, whose metrics are written after every second one."""

    def plan(self) -> Repeat:
        rounds = Repeat(name="round", times=6, body=(self.stage("train_step"),))
        return Repeat(name="train", times=1, body=(rounds,))


class Callback:
    """Puts what is drawn into the run."""

    def __init__(self, trainer: Any, draw: Draw) -> None:
        self.trainer, self.draw = trainer, draw

    def after_train_step(self) -> None:
        self.trainer.work.values += self.draw()


def with_callback(make: Any, path: Path) -> Any:
    trainer = Hiding(toy_config("toy_hiding"))
    trainer.add(Callback(trainer, make(path)), name="mine")
    return trainer


for name, (make, found, words) in WAYS.items():
    case(f"callback: {name.replace('_', ' ')}", found, words)(partial(with_callback, make))


class Holding(Hiding):
    """A trainer of one's own, with something in an attribute that is no part."""

    draw: Draw

    def after_train_step(self) -> None:
        self.work.values += self.draw()


def with_attribute(make: Any, path: Path) -> Any:
    trainer = Holding(toy_config("toy_hiding"))
    trainer.draw = make(path)
    return trainer


IN_TRAINER = [
    "number", "list_of_ten_thousand", "seven_levels_deep", "generator_of_numpy", "slots", "closure",
    "count_of_itertools", "generator_function", "network_that_is_taught", "optimizer_of_torch",
    "class_attribute", "module_global",
]  # fmt: skip
for name in IN_TRAINER:
    case(f"trainer: {name.replace('_', ' ')}", "watcher", "draw")(
        partial(with_attribute, WAYS[name][0])
    )


class Teaching(Hiding):
    """Moves what a part holds by an optimizer that is in none."""

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.opt = torch.optim.Adam([self.work.values.requires_grad_(False)], lr=0.1)

    def after_train_step(self) -> None:
        weight = self.opt.param_groups[0]["params"][0]
        weight.grad = torch.cos(self.work.values)
        self.opt.step()
        self.work.values = self.work.values + weight.detach()


@case("trainer: optimizer of its own over a part's tensors", "watcher", "opt")
def own_optimizer(path: Path) -> Any:
    return Teaching(toy_config("toy_hiding"))


class Half(Callback):
    """Saves one of the two numbers that it counts."""

    def __init__(self, trainer: Any, draw: Draw) -> None:
        super().__init__(trainer, draw)
        self.num_calls = 0

    def after_train_step(self) -> None:
        super().after_train_step()
        self.num_calls += 1

    def state_dict(self) -> dict[str, Any]:
        return {"num_calls": self.num_calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.num_calls = state["num_calls"]


@case("callback: a state_dict that leaves something out", "resume")
def half_saved(path: Path) -> Any:
    trainer = Hiding(toy_config("toy_hiding"))
    trainer.add(Half(trainer, WAYS["list_in_a_closure"][0](path)), name="mine")
    return trainer


class HalfPart:
    """A part whose state_dict forgets its generator."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)
        self.total = torch.zeros(())

    def add(self) -> float:
        self.total = self.total + torch.rand((), generator=self.generator)
        return float(self.total)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.total = state["total"]


class WithHalfPart(Hiding):
    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.half = HalfPart()

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "half": self.half}

    def after_train_step(self, run: Run) -> None:
        self.work.values += self.half.add()


@case("trainer: a part whose state_dict leaves something out", "resume")
def half_part(path: Path) -> Any:
    return WithHalfPart(toy_config("toy_hiding"))
