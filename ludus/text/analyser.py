"""Analyser of text rollouts: computes metrics for the log, without side effects.

A new one is one file of `analysers/`, or a class of a plugin, registered as a kind of `text_analyser`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import SerializeAsAny

from ludus.arena.protocol import ProtocolHandler
from ludus.config.base import StrictConfig
from ludus.config.registry import find
from ludus.config.sections import kind_of, registered
from ludus.core.errors import LudusError
from ludus.text.nested.array_dict import NestedArrayDict

TextAnalyserSection = Annotated[SerializeAsAny[StrictConfig], registered("text_analyser")]


class TextAnalyser(ABC):
    """Base class of analysers of text; derive it, and register it."""

    Config: ClassVar[type[StrictConfig]]

    def __init__(self, config: StrictConfig) -> None:
        self.config = config

    @abstractmethod
    def analyse(self, rollouts: NestedArrayDict, handler: ProtocolHandler) -> Mapping[str, float]:
        """Return metrics by name."""


class AnalysedTextRollouts:
    """The metrics of all analysers of a run."""

    def __init__(self, sections: Sequence[StrictConfig]) -> None:
        self.analysers: dict[str, TextAnalyser] = {
            kind_of(section): find("text_analyser", kind_of(section))(section)
            for section in sections
        }

    def __call__(self, rollouts: NestedArrayDict, handler: ProtocolHandler) -> dict[str, float]:
        """Return the metrics of (B, T) rounds, each under the name of its analyser."""
        found: dict[str, float] = {}
        for kind, analyser in self.analysers.items():
            for name, value in analyser.analyse(rollouts, handler).items():
                if not isinstance(value, int | float):
                    raise LudusError(
                        f"the analyser {kind} returned a {type(value).__name__} for '{name}'; return a number"
                    )
                found[f"{kind}/{name}"] = float(value)
        return found
