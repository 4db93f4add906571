"""Check that a trainer can evaluate, play or export saved weights; raise a clear error otherwise."""

from __future__ import annotations

from shlex import quote

from ludus.core.abilities import (
    Evaluates,
    Exports,
    KeepsWeights,
    Kept,
    MakesPrograms,
    MeasuresOthers,
    NamesRun,
    Narrates,
    Plays,
    find_ability,
)
from ludus.core.errors import LudusError
from ludus.core.trainer import Trainer


def that_evaluates(trainer: Trainer) -> Evaluates:
    """Return what evaluates; raise LudusError unless the trainer's weights can be evaluated."""
    if (able := find_ability(trainer, Evaluates)) is None:
        raise _refused(
            trainer,
            "eval",
            "cannot be evaluated from kept weights; give its trainer the methods weights_of and"
            " evaluate_weights (ludus.core.abilities)",
        )
    return able


def that_measures_others(kept: Kept, path: str) -> MeasuresOthers:
    """Return kept networks that can be measured on other data; raise LudusError if they cannot."""
    if not isinstance(kept, MeasuresOthers):
        raise LudusError(
            f"{path} was not trained on a data set, so --data does not apply; --seed evaluates it in other"
            " episodes"
        )
    return kept


def that_makes_programs(kept: Kept, path: str) -> MakesPrograms:
    """Return kept networks that can be traced; raise LudusError if they cannot."""
    if not isinstance(kept, MakesPrograms):
        raise LudusError(
            f"what {path} trained takes no plain tensors, so it is no program for torch or ONNX; ludus.load"
            " returns its networks"
        )
    return kept


def that_plays(trainer: Trainer) -> Plays | Narrates:
    """Return what plays; raise LudusError unless the trainer can film or print a game."""
    able: Plays | Narrates | None = find_ability(trainer, Plays) or find_ability(trainer, Narrates)
    if able is None:
        raise _refused(trainer, "play", "has nothing to film; try ludus report")
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
        raise _refused(trainer, "export", f"cannot be exported to NumPy; {weights}")
    return able


def _refused(trainer: Trainer, command: str, words: str) -> LudusError:
    """Return the error; if the weights belong to another run, it names that run and the command for it."""
    kind = f"a run of kind '{trainer.config.kind}'"
    has_weights = find_ability(trainer, KeepsWeights) is not None
    if has_weights or not isinstance(trainer.config, NamesRun):
        return LudusError(f"{kind} {words}")
    earlier = trainer.config.run
    return LudusError(
        f"{kind} keeps no weights of its own, for it works with those of {earlier}; give that run:"
        f" ludus {command} {quote(str(earlier))}"
    )
