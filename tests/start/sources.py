"""Earlier runs to start from, each trained once, and runs that start from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import ludus
from ludus.config.start import start_class
from ludus.core.runtime import InMemoryRuntime
from tests.keys.runs import tiny
from tests.rl.small import NORMALISE

Source = Callable[[str], Path]
KINDS = (
    "supervised", "active", "dqn", "iqn", "sac", "ppo", "fused_ppo", "fused_dqn", "vanilla_ppo", "reinforce",
    "spg", "solo_agent",
)  # fmt: skip
FAMILIES = ("supervised", "dqn", "ppo", "fused_ppo", "fused_dqn", "vanilla_ppo", "solo_agent")
OWN: dict[str, dict[str, Any]] = {
    "ppo": {"normalise": NORMALISE}, "dqn": {"normalise": NORMALISE, "settings.display": "none"},
}  # fmt: skip


def small_run(kind: str, **changed: Any) -> Any:
    """Return the config of a run of a few steps, with normalisation where there is any."""
    return tiny(kind, **{**OWN.get(kind, {}), **changed})


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Return a function from a kind to the directory of a finished run of it."""
    root = tmp_path_factory.mktemp("sources")

    @functools.cache
    def trained(kind: str) -> Path:
        ludus.build_trainer(small_run(kind, seed=3)).fit(root=str(root), name=kind)
        return root / kind

    return trained


def section(kind: str, run: Path | str, **changed: Any) -> dict[str, Any]:
    """Return the section `start` of a kind."""
    fields = start_class(type(small_run(kind)))
    assert fields is not None
    empty: dict[str, Any] = {
        name: [] if name in ("frozen", "learning_rates") else False for name in fields.model_fields
    }
    return {**empty, "run": str(run), "model": "last", **changed}


class First:
    """Notes the weights before training."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.weights: dict[str, Tensor] = {}

    def before_train(self) -> None:
        self.weights = named_weights(self._trainer)


def named_weights(trainer: Any) -> dict[str, Tensor]:
    """Return a copy of all weights of a trainer by the names that they have in kept models."""
    return {
        named(name): weight.detach().clone()
        for learner, named in trainer.starting().learners.values()
        for name, weight in learner.weights().items()
    }


def trained_names(trainer: Any) -> list[str]:
    """Return the names of the parameters that take steps."""
    return [
        named(name)
        for learner, named in trainer.starting().learners.values()
        for name in learner.flat.names
    ]


def run_in_memory(config: Any) -> tuple[Any, dict[str, Tensor], dict[str, Tensor]]:
    """Return a trainer that has run, its weights before training, and those after."""
    trainer: Any = ludus.build_trainer(config)
    first = First(trainer)
    trainer.add(first, name="first")
    trainer.fit(runtime=InMemoryRuntime)
    return trainer, first.weights, named_weights(trainer)
