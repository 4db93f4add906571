"""A trainer without a network: its stages mix random numbers into a small state, so that any slip shows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ludus.config.base import TrainerConfig, example, validate
from ludus.config.migrations import VERSION
from ludus.core import Every, Observer, Run, Stage, Stateful
from ludus.seeds import generator
from ludus.session.logger import WriteLog
from ludus.session.trainer import Trainer

COUNTED = {
    "train_step": "opt_steps",
    "fit": "opt_steps",
    "collect": "env_steps",
    "query": "examples",
}


class ToyConfig(TrainerConfig):
    """A toy has nothing to choose besides what every trainer has."""

    num_rounds: int
    """How many rounds its outermost loop has."""


def toy_config(kind: str, *, num_rounds: int = 3) -> ToyConfig:
    settings = example("supervised").settings.model_dump()
    settings |= {"display": "none", "loggers": []}
    settings["checkpoint"] |= {"every_stages": 1, "every_seconds": 0.0}
    data = {"version": VERSION, "kind": kind, "name": kind.replace("_", "-"), "seed": 5}
    data |= {"num_rounds": num_rounds, "settings": settings}
    return validate(ToyConfig, data, source="toy")


class Work:
    """What the stages change: a vector, a generator of its own, and a digest of all that was done."""

    def __init__(self, seed: int) -> None:
        self.values = torch.zeros(4)
        self.generator = generator(seed, "toy")
        self.done = ""

    def do(self, name: str) -> dict[str, Any]:
        own = torch.randn(4, generator=self.generator)
        self.values = torch.tanh(0.9 * self.values + own + 0.1 * torch.randn(4))
        self.done = hashlib.sha256(f"{self.done}{name}{self.values.tolist()}".encode()).hexdigest()
        return {f"toy/{name}": self.values.sum()}

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "generator": self.generator.get_state(), "done": self.done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values = state["values"].clone()
        self.generator.set_state(state["generator"])
        self.done = state["done"]


class ToyTrainer(Trainer):
    """Subclasses write only a plan."""

    Config = ToyConfig

    def prepare(self, *, max_steps: int | None) -> None:
        self.work = Work(self.config.seed)
        cadences = [Every(3, "opt_steps"), Every(1, "epoch"), Every(2, "iteration")]
        self.write_log = WriteLog(self.logger, cadences)

    def parts(self) -> Mapping[str, Stateful]:
        return {"work": self.work, "write_log": self.write_log}

    def observers(self) -> Sequence[Observer]:
        return [self.write_log]

    def stage(self, name: str, **options: Any) -> Stage:
        def work(run: Run) -> Mapping[str, Any]:
            if name in COUNTED:
                run.counters[COUNTED[name]] += 1
            return self.work.do(name)

        return Stage(name=name, work=work, **options)

    @property
    def result(self) -> str:
        return self.work.done
