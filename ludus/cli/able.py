"""Check that a trainer can evaluate, play or export saved weights; raise a clear error otherwise."""

from __future__ import annotations

from typing import TypeVar

from ludus.core.abilities import (
    Estimates,
    Evaluates,
    Exports,
    KeepsWeights,
    Kept,
    MakesPrograms,
    MeasuresOthers,
    Narrates,
    Plays,
    PlaysWithPeople,
    find_ability,
    unable,
)
from ludus.core.errors import LudusError
from ludus.core.trainer import Trainer

T = TypeVar("T")


def that_evaluates(trainer: Trainer) -> Evaluates:
    """Return what evaluates; raise LudusError unless the trainer's weights can be evaluated."""
    if (able := find_ability(trainer, Evaluates)) is None:
        raise unable(
            trainer,
            "cannot be evaluated from kept weights; give its trainer the methods weights_of and"
            " evaluate_weights (ludus.core.abilities)",
            command="eval",
        )
    return able


def that_estimates(trainer: Trainer) -> Estimates:
    """Return what counts the cost of a run; raise LudusError unless the trainer asks a paid service."""
    if (able := find_ability(trainer, Estimates)) is None:
        raise unable(trainer, "asks no service for anything, so --dry-run has nothing to count")
    return able


def that_plays_with_people(trainer: Trainer) -> PlaysWithPeople:
    """Return what lets a person act; raise LudusError unless the trainer's agents speak in words."""
    if (able := find_ability(trainer, PlaysWithPeople)) is None:
        raise unable(trainer, "has no agent that a person could speak for; leave out --as")
    return able


def that_measures_others(kept: Kept, path: str) -> MeasuresOthers:
    """Return kept networks that can be measured on other data; raise LudusError if they cannot."""
    words = (
        f"{path} was not trained on a data set, so --data does not apply; --seed evaluates it in other"
        " episodes"
    )
    return _with_ability(kept, MeasuresOthers, words)


def that_makes_programs(kept: Kept, path: str) -> MakesPrograms:
    """Return kept networks that can be traced; raise LudusError if they cannot."""
    words = (
        f"what {path} trained takes no plain tensors, so it is no program for torch or ONNX; ludus.load"
        " returns its networks"
    )
    return _with_ability(kept, MakesPrograms, words)


def _with_ability(kept: Kept, wanted: type[T], words: str) -> T:
    if not isinstance(kept, wanted):
        raise LudusError(words)
    return kept


def that_plays(trainer: Trainer) -> Plays | Narrates:
    """Return what plays; raise LudusError unless the trainer can film or print a game."""
    able: Plays | Narrates | None = find_ability(trainer, Plays) or find_ability(trainer, Narrates)
    if able is None:
        raise unable(trainer, "has nothing to film; try ludus report", command="play")
    return able


def that_exports(trainer: Trainer) -> Exports:
    """Return what exports; raise LudusError unless the trainer's weights can run without torch."""
    if (able := find_ability(trainer, Exports)) is None:
        has_weights = find_ability(trainer, KeepsWeights) is not None
        weights = (
            "--format torch or onnx writes its network, and its weights are in models/"
            if has_weights
            else "it keeps no weights"
        )
        raise unable(trainer, f"cannot be exported to NumPy; {weights}", command="export")
    return able
