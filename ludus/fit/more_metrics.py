"""Further metrics of a model's steps: every number they return in addition to the loss."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.nn.model import Model
from ludus.seeds import forked

MORE = "more_metrics"
"""The key of the sums in a state; present only if there are any."""
_COUNTED = frozenset({"loss", "correct"})


class MoreMetrics:
    """Further metrics of `training_step`: by batch, and their means over the examples of an epoch."""

    def __init__(self, exact: torch.dtype) -> None:
        """`exact` is the dtype of the sums."""
        self._exact = exact
        self._names: list[str] = []
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def of(self, result: Mapping[str, Any]) -> list[Tensor]:
        """Return the numbers in a step's result, for `take`, which may also get a replay of them."""
        if not torch.compiler.is_compiling() and result.keys() <= _COUNTED:
            # The common case, at every step.
            self._names = []
            return []
        found = numbers_in({name: one for name, one in result.items() if name not in _COUNTED})
        if not torch.compiler.is_compiling():
            self._names = [*found]
        # Compiled code cannot record the names, so `find` has done it.
        return [found[name] for name in self._names if name in found]

    def find(self, model: Model, batch: object) -> None:
        """Call a model's own training_step once, without learning, to find the names of its metrics."""
        if type(model).training_step is Model.training_step:
            return
        # An error here is ignored: if it is a mistake, training raises it again.
        with forked(0), model.evaluating(), torch.no_grad(), contextlib.suppress(Exception):
            self.of(model.training_step(batch, 0))

    def take(self, values: Sequence[Tensor], count: int) -> dict[str, Tensor]:
        """Add the values of a batch of this many examples to the sums; return them as metrics."""
        metrics = {}
        for name, value in zip(self._names, values, strict=True):
            number = value.to(self._exact) * count
            self._sums[name] = self._sums[name] + number if name in self._sums else number
            self._counts[name] = self._counts.get(name, 0) + count
            metrics[f"train/{name}"] = value
        return metrics

    def close_epoch(self) -> dict[str, float]:
        """Return the means over the examples that had each metric, and reset the sums."""
        means = {
            f"train/epoch_{name}": total.item() / self._counts[name]
            for name, total in self._sums.items()
        }
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the sums with their names."""
        if not self._sums:
            return {}
        return {MORE: {"sums": dict(self._sums), "counts": dict(self._counts)}}

    def read(self, state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Return the sums and counts of a state, for `load`; raise StateError if they are none."""
        if MORE not in state:
            return {}, {}
        saved = states.mapping(state, MORE)
        with states.within(MORE):
            states.check_keys(saved, "sums", "counts")
            counts, sums = states.counts(saved, "counts"), states.mapping(saved, "sums")
            states.check_keys(sums, *counts)
            like = torch.zeros((), dtype=self._exact)
            with states.within("sums"):
                return {name: states.like(sums, name, like).clone() for name in counts}, counts

    def load(self, sums: dict[str, Tensor], counts: dict[str, int]) -> None:
        """Restore saved sums."""
        self._sums, self._counts = sums, dict(counts)


def numbers_in(result: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return each number in a step's result as a 0-d tensor; outputs and other tensors are left out."""
    found = {}
    for name, value in result.items():
        if isinstance(value, Tensor) and value.numel() == 1:
            found[name] = value.detach().reshape(())
        elif isinstance(value, bool | int | float):
            found[name] = torch.tensor(float(value))
    return found
