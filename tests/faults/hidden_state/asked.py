"""Oracles, strategies, pools, analysers, scenarios and protocols that keep something."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import ludus
from ludus.active.strategy import Strategy, View
from ludus.arena.protocols._table import Nip, NipParameters
from ludus.arena.scenario import Datasets
from ludus.arena.scenarios.tiny import Tiny, TinyParameters
from ludus.config.base import StrictConfig
from tests.active.conftest import small_active
from tests.arena.sections import TINY
from tests.arena.small import small_arena
from tests.faults.hidden_state.case import case
from tests.faults.hidden_state.data import OwnGenerator, drawn, rows


def active(pool: Any = None, oracle: Any = None, **more: Any) -> Any:
    """Return an active run on a pool of a script's own, with an oracle that is a function."""
    changes = {
        "data": None, "model": None, "evaluate_every_epochs": 0, "evaluation.keep": 0,
        "oracle": {"kind": "function", "at_once": 50}, "calibration": None, **more,
    }  # fmt: skip
    torch.manual_seed(1)
    trainer = ludus.ActiveTrainer(
        small_active(**changes),
        train_loader=TensorDataset(rows()[0]) if pool is None else pool,
        model=nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 2)),
    )
    trainer.set_oracle(oracle or (lambda inputs, asked: [row % 2 for row in asked]))
    return trainer


@case("oracle: a function with a closure", "watcher", "count")
def closing_oracle(path: Path) -> Any:
    count = [0]

    def answer(inputs: Any, asked: Sequence[int]) -> list[int]:
        count[0] += 1
        return [(row + count[0]) % 2 for row in asked]

    return active(oracle=answer)


class Guessing:
    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def answer(self, inputs: Any, asked: Sequence[int]) -> list[int]:
        return self.generator.integers(0, 2, len(asked)).tolist()


@case("oracle: a method of an object with a generator", "watcher", "generator")
def guessing_oracle(path: Path) -> Any:
    return active(oracle=Guessing().answer)


class Saved(Guessing):
    """Says what it keeps; but what it has answered is in a journal, and not asked for again."""

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.bit_generator.state = state["generator"]


@case("oracle: a method of an object with a state_dict", "watcher", "none is asked for again")
def saved_oracle(path: Path) -> Any:
    return active(oracle=Saved().answer)


class Learning:
    """An oracle that is a network, which learns from what it is asked."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.net = nn.Linear(3, 2)

    def __call__(self, inputs: Tensor, asked: Sequence[int]) -> list[int]:
        with torch.no_grad():
            self.net.weight.data.add_(inputs.mean())
            return self.net(inputs).argmax(1).tolist()


@case("oracle: a network that it changes", "watcher", "net")
def learning_oracle(path: Path) -> Any:
    return active(oracle=Learning())


@ludus.register("strategy", "tests_hiding")
class Turning(Strategy):
    """Takes rows from another end each round."""

    needs = ("probabilities",)  # type: ignore[assignment]

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["tests_hiding"]
        """Rows from one end or the other."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.rounds = itertools.count()

    def choose(self, view: View, count: int) -> Tensor:
        return view.rows[:count] if next(self.rounds) % 2 else view.rows[-count:]


@case("strategy: a count of itertools", "watcher", "rounds")
def turning_strategy(path: Path) -> Any:
    return active(strategy={"kind": "tests_hiding"})


@case("pool: tensors that are drawn anew by each process", "refused")
def drawn_pool(path: Path) -> Any:
    return active(TensorDataset(drawn(32, 3) / 256))


@case("pool: a data set with a generator of its own", "data", "asked twice")
def own_pool(path: Path) -> Any:
    return active(OwnGenerator())


class CountedParameters(ludus.StrictConfig):
    """There is nothing to be told."""

    kind: Literal["tests_hiding"]
    """How often it was asked."""


@ludus.register("analyser", "tests_hiding")
class Counted(ludus.Analyser):
    Config = CountedParameters

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.asked = np.zeros(1)

    def analyse(self, rollouts: Any, environment: Any) -> Any:
        self.asked += 1
        return {"asked": float(self.asked[0])}


@case("analyser: a count in an array", "watcher", "asked")
def analyser(path: Path) -> Any:
    return ludus.build_trainer(small_arena(analysers=[{"kind": "tests_hiding"}]))


class KeptParameters(ludus.StrictConfig):
    """There is nothing to be told."""

    kind: Literal["tests_kept"]
    """How often it was asked, which is saved."""


@ludus.register("analyser", "tests_kept")
class Kept(Counted):
    Config = KeptParameters  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        return {"asked": self.asked.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.asked = np.array(state["asked"])


@case("analyser: with a state_dict", "harmless")
def kept_analyser(path: Path) -> Any:
    return ludus.build_trainer(small_arena(analysers=[{"kind": "tests_kept"}]))


class DrawnParameters(TinyParameters):
    """Those of tiny."""

    kind: Literal["tests_drawn"]  # type: ignore[assignment]
    """Rows of bits that are drawn anew each time."""


@ludus.register("scenario", "tests_drawn")
class Drawn(Tiny):
    Config = DrawnParameters

    def make_datasets(self, seed: int) -> Datasets:
        """Return other datasets each time."""
        return super().make_datasets(int.from_bytes(os.urandom(4)))


@case("scenario: datasets that are drawn anew by each process", "refused")
def drawn_scenario(path: Path) -> Any:
    return ludus.build_trainer(small_arena(scenario={**TINY, "kind": "tests_drawn"}))


class TalkingParameters(NipParameters):
    """Those of nip."""

    kind: Literal["tests_talking"]  # type: ignore[assignment]
    """Rewards that grow as the run goes on."""


@ludus.register("protocol", "tests_talking")
class Talking(Nip):
    """Rewards more as the run goes on."""

    Config = TalkingParameters

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.turns = [0]

    def side_rewards(self, round_index: int, action_BAK: Tensor, seed_B: Tensor) -> Tensor:
        self.turns[0] += 1
        return torch.full((len(seed_B), 2), self.turns[0] / 10)


@case("protocol: a count in a list", "watcher", "turns")
def talking_protocol(path: Path) -> Any:
    section = {**small_arena().protocol.model_dump(), "kind": "tests_talking"}
    return ludus.build_trainer(small_arena(protocol=section))
