"""Scenario of text: questions with a yes-or-no answer, as columns of text, and demonstrations of the task.

A new scenario is one file of `scenarios/`, or of a plugin: it registers a class derived from TextScenario.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

from pydantic import SerializeAsAny

from ludus.config.base import StrictConfig
from ludus.config.sections import registered
from ludus.core.errors import ConfigError, LudusError


class TextScenarioConfig(StrictConfig):
    """The keys of every scenario of text."""

    kind: str
    """The scenario."""


TextScenarioSection = Annotated[SerializeAsAny[TextScenarioConfig], registered("text_scenario")]


@dataclass(frozen=True)
class TextDataset:
    """Questions: columns of text, which prompts name, and the right decision for each."""

    columns: Mapping[str, Sequence[str]]
    labels: Sequence[int]
    """0 or 1 for each question: what a verifier should decide."""

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != len(self.labels):
                raise LudusError(
                    f"the column '{name}' has {len(column)} rows, but there are {len(self.labels)} labels"
                )
        if wrong := {label for label in self.labels if label not in (0, 1)}:
            raise LudusError(f"a label is {sorted(wrong)[0]!r}; labels are 0 and 1")

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, index: int) -> dict[str, str]:
        """Return the columns of one question."""
        return {name: column[index] for name, column in self.columns.items()}


@dataclass(frozen=True)
class TextDatasets:
    """The questions that agents learn from, and those of tests, which they never see in training."""

    train: TextDataset
    test: TextDataset

    def check(self) -> TextDatasets:
        """Return it; raise ConfigError if a split is empty or the columns differ."""
        for name, one in (("train", self.train), ("test", self.test)):
            if not len(one):
                raise ConfigError(f"'scenario': there are no {name} questions; raise its size")
        if set(self.train.columns) != set(self.test.columns):
            raise ConfigError("'scenario': train and test have different columns")
        return self


class TextScenario(ABC):
    """Makes the questions of a config."""

    Config: ClassVar[type[TextScenarioConfig]]

    def __init__(self, config: TextScenarioConfig) -> None:
        self.config = config

    @abstractmethod
    def make_datasets(self, seed: int) -> TextDatasets:
        """Return the questions, the same for the same seed and config."""

    def demonstrate(
        self, agent: str, row: Mapping[str, str], label: int, *, decides: bool, random: Random
    ) -> str | int:
        """Return what an agent could say in a turn, for pretraining: a message, or a decision (0, 1).

        It shows the form of an answer and not the solution, or there is nothing left to learn.
        """
        raise ConfigError(
            f"'pretraining' needs demonstrations, and the scenario {type(self).__name__} has none; set it to"
            " null, or define `demonstrate`"
        )
