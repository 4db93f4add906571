"""An iteration in the arena is made in one order, and the plan says it."""

from __future__ import annotations

from typing import Any

import pytest

import ludus
from ludus.core.runtime import InMemoryRuntime
from ludus.show.progress import total_iterations
from tests.arena.sections import parts
from tests.arena.small import MLP, small_arena


class Heard:
    """Notes the stages as they begin, and which parts of the verifier are frozen in an update."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.names, self.frozen = trainer, [], []  # type: ignore[var-annotated]

    def before_collect(self) -> None:
        self.names.append("collect")

    def before_estimate(self) -> None:
        self.names.append("estimate")

    def before_train_step(self) -> None:
        self.names.append("train_step")
        frozen = self.trainer.learner.flat.frozen
        self.frozen.append({name: bool(one) for name, one in frozen.items()})

    def before_evaluate(self) -> None:
        self.names.append("evaluate")

    def before_record(self) -> None:
        self.names.append("record")

    def before_test(self) -> None:
        self.names.append("test")

    def before_save_models(self) -> None:
        self.names.append("save_models")


@pytest.mark.covers("002-S3")
def test_agents_are_frozen_or_freed_before_episodes_and_each_epoch_has_its_updates() -> None:
    late = {"kind": "contiguous_periodic", "period": 2, "start": 1, "stop": 2}
    agents = {"verifier": parts(MLP, update_schedule=late), "prover": parts(MLP)}
    trainer: Any = ludus.build_trainer(small_arena(agents=agents, max_iterations=2))
    trainer.set_logger(ludus.Logger({"backends": []}))
    heard = Heard(trainer)
    trainer.add(heard)
    trainer.fit(runtime=InMemoryRuntime)
    updates = ["train_step"] * 4
    first = ["collect", "estimate", *updates, "record"]
    last = ["collect", "estimate", *updates, "evaluate", "record", "test", "save_models"]
    assert heard.names == [*first, *last]
    is_frozen = [
        all(f for name, f in one.items() if name.startswith("verifier")) for one in heard.frozen
    ]
    assert is_frozen == [True] * 4 + [False] * 4
    assert not any(
        f for one in heard.frozen for name, f in one.items() if name.startswith("prover")
    )


class Costly:
    """A trainer one of whose properties must not be looked at."""

    @property
    def answer(self) -> int:
        raise AssertionError("a property was evaluated")


@pytest.mark.covers("002-D9")
def test_the_total_of_iterations_evaluates_no_property_and_needs_no_run() -> None:
    base: Any = type(ludus.build_trainer(small_arena()))
    trainer = type("Mine", (Costly, base), {})(small_arena())
    assert trainer.num_total_iterations == total_iterations(trainer) == 3 + 2
