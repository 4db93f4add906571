"""Analyser: computes metrics of rollouts for the log, without side effects.

A new one is one file of `analysers/`, or a class of a plugin, registered as a kind of `analyser`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from ludus.arena.libraries import TensorDictBase
from ludus.arena.playing.environment import Environment
from ludus.arena.statistics import Statistics, mean_of, rollout_statistics
from ludus.config.base import StrictConfig
from ludus.config.registry import find
from ludus.config.sections import kind_of, registered
from ludus.core.errors import LudusError

AnalyserSection = Annotated[SerializeAsAny[StrictConfig], registered("analyser")]


class Analyser(ABC):
    """Base class of analysers, which measure rollouts; derive it, and register it."""

    Config: ClassVar[type[StrictConfig]]

    def __init__(self, params: StrictConfig) -> None:
        self.params = params

    @abstractmethod
    def analyse(
        self, rollouts: TensorDictBase, environment: Environment
    ) -> Mapping[str, Tensor | float]:
        """Return metrics by name, as 0-dimensional tensors, without waiting for the device.

        The names are the same each time: they are columns of the record.
        """


class AnalysedRollouts:
    """All statistics of the rollouts of a run: the standard ones, and those of its analysers."""

    def __init__(self, sections: Sequence[StrictConfig]) -> None:
        kinds = [kind_of(section) for section in sections]
        self.analysers: dict[str, Analyser] = {
            kind: find("analyser", kind)(section)
            for kind, section in zip(kinds, sections, strict=True)
        }
        self._names: dict[str, set[str]] = {}

    def __call__(self, rollouts: TensorDictBase, environment: Environment) -> Statistics:
        """Return the statistics of (B, T) steps."""
        found = rollout_statistics(rollouts, environment)
        for kind, analyser in self.analysers.items():
            numbers = analyser.analyse(rollouts, environment)
            self._check_names(kind, {*numbers})
            for name, value in numbers.items():
                number = torch.as_tensor(value, device=rollouts["mask"].device)
                if number.ndim or f"{kind}/{name}" in found:
                    raise LudusError(
                        f"the analyser {kind} returned '{name}' of shape {tuple(number.shape)}; return one"
                        " number for each name, a tensor of no dimension"
                    )
                found[f"{kind}/{name}"] = mean_of(number)
        return found

    def _check_names(self, kind: str, names: set[str]) -> None:
        """Raise LudusError where an analyser returns other names than at first."""
        first = self._names.setdefault(kind, names)
        if odd := sorted(map(str, first ^ names)):
            raise LudusError(
                f"the analyser {kind} returned '{odd[0]}' for some rollouts and not for others; return the"
                " same names each time"
            )
