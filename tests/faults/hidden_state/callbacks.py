"""Every way to hide a count, in a callback; and what a trainer, an evaluator and a recorder may hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ludus.config.registry import register_trainer
from ludus.core import Every, Repeat, Run, Stateful
from ludus.session.logger import WriteLog
from tests.faults.hidden_state.case import case
from tests.faults.hidden_state.ways import WAYS, Draw
from tests.toy import ToyConfig, ToyTrainer, toy_config


@register_trainer("toy_hiding")
class Hiding(ToyTrainer):
    """Nine rounds of one stage, with a line of metrics for each and a checkpoint after every third."""

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.write_log = WriteLog(self.logger, [Every(1, "opt_steps")])

    def plan(self) -> Repeat:
        rounds = Repeat(name="round", times=9, body=(self.stage("train_step"),))
        return Repeat(name="train", times=1, body=(rounds,))


def config() -> ToyConfig:
    return toy_config("toy_hiding").replace(**{"settings.checkpoint.every_stages": 3})


class Callback:
    """Puts what is drawn into the run."""

    def __init__(self, trainer: Any, draw: Draw) -> None:
        self.trainer, self.draw = trainer, draw

    def after_train_step(self) -> None:
        self.trainer.work.values += self.draw()


def with_callback(make: Any, path: Path) -> Any:
    trainer = Hiding(config())
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
    trainer = Holding(config())
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
    return Teaching(config())


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
    trainer = Hiding(config())
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
    return WithHalfPart(config())


class Late(Callback):
    """Lets what it keeps show once it is large."""

    def after_train_step(self) -> None:
        self.trainer.work.values += float(self.draw() > 7)


@case("callback: what shows only after all that was seen twice", "unseen", "the lines agreed")
def late(path: Path) -> Any:
    trainer = Hiding(config())
    trainer.add(Late(trainer, WAYS["value_of_a_thread"][0](path)), name="mine")
    return trainer


@case("callback: one line seen twice, written before what is hidden shows", "unseen", "it agreed")
def one_line(path: Path) -> Any:
    trainer = Hiding(config().replace(**{"settings.checkpoint.every_stages": 1}))
    trainer.add(Callback(trainer, WAYS["value_of_a_thread"][0](path)), name="mine")
    return trainer


class Silent(Hiding):
    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.write_log = WriteLog(self.logger, [Every(100, "opt_steps")])


@case("callback: a kill that left no line beyond the checkpoint", "unseen", "nothing to compare")
def no_line(path: Path) -> Any:
    trainer = Silent(config())
    trainer.add(Callback(trainer, WAYS["value_of_a_thread"][0](path)), name="mine")
    return trainer
