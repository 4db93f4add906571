"""Let ludus ask for labels by each of its strategies, and look at the accuracy after every round."""

from typing import Any

import torch

import ludus
from benchmarks._active_tables import TABLES, Table, accuracy, pool_and_test
from ludus.core.runtime import InMemoryRuntime
from ludus.seeds import derive, seed_everything

STRATEGIES: dict[str, dict[str, Any]] = {
    "uniform": {"kind": "uniform"},
    "margin": {"kind": "margin", "shortlist": None},
    "entropy": {"kind": "entropy", "shortlist": None},
    "badge": {"kind": "badge"},
    "core_set": {"kind": "core_set"},
}


def learn(table: str, seed: int) -> dict[str, list[list[float]]]:
    """Return a curve for each strategy: labels, and the test accuracy with so many."""
    torch.set_num_threads(1)
    return {name: _curve(TABLES[table], seed, strategy) for name, strategy in STRATEGIES.items()}


def config_of(table: Table, seed: int, strategy: dict[str, Any]) -> Any:
    """Return the shipped config with this table, budget and strategy, and no labels but those asked for."""
    return ludus.example("active").replace(
        **{
            "seed": seed,
            "data": table.data,
            "model": table.model,
            "initial_labels": table.initial_labels,
            "queries": table.queries,
            "max_rounds": table.max_rounds,
            "max_epochs": table.max_epochs,
            "strategy": strategy,
            "evaluate_every_epochs": 0,
            "evaluation.patience": None,
            "evaluation.keep": 0,
            "calibration": None,
            "settings.display": "none",
            "settings.loggers": [],
        }
    )


def _curve(table: Table, seed: int, strategy: dict[str, Any]) -> list[list[float]]:
    # In memory nobody else seeds what dropout draws from.
    seed_everything(derive(seed, "global"))
    trainer = ludus.build_trainer(config_of(table, seed, strategy))
    watch = _Watch(trainer, pool_and_test(table, seed)[1])
    trainer.add(watch)
    trainer.fit(runtime=InMemoryRuntime)
    return watch.curve


class _Watch:
    """A callback that looks at the accuracy when a round has been tested."""

    def __init__(self, trainer: Any, test: tuple[torch.Tensor, torch.Tensor]) -> None:
        self._trainer, self._test = trainer, test
        self.curve: list[list[float]] = []

    def after_test(self) -> None:
        found = accuracy(self._trainer.model.module, self._test)
        self.curve.append([self._trainer.pool.num_labelled, found])
