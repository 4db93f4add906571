"""Check that a trainer can evaluate, play or export saved weights; raise a clear error otherwise."""

from __future__ import annotations

from shlex import quote

from ludus.core.abilities import Evaluates, Exports, KeepsWeights, NamesRun, Narrates, Plays
from ludus.core.errors import LudusError
from ludus.core.trainer import Trainer


def that_evaluates(trainer: Trainer) -> Evaluates:
    """Return the trainer; raise LudusError unless its weights can be evaluated."""
    if not isinstance(trainer, Evaluates):
        raise _refused(
            trainer,
            "eval",
            "cannot be evaluated from kept weights; give its trainer the methods weights_of and"
            " evaluate_weights (ludus.core.abilities)",
        )
    return trainer


def that_plays(trainer: Trainer) -> Plays | Narrates:
    """Return the trainer; raise LudusError unless it can film or print a game."""
    if not isinstance(trainer, Plays | Narrates):
        raise _refused(trainer, "play", "has nothing to film; try ludus report")
    return trainer


def that_exports(trainer: Trainer) -> Exports:
    """Return the trainer; raise LudusError unless it can export its weights to run without torch."""
    if not isinstance(trainer, Exports):
        has_weights = isinstance(trainer, KeepsWeights)
        weights = "its weights are in models/" if has_weights else "it keeps no weights"
        raise _refused(trainer, "export", f"cannot be exported; {weights}")
    return trainer


def _refused(trainer: Trainer, command: str, words: str) -> LudusError:
    """Return the error; if the weights belong to another run, it names that run and the command for it."""
    kind = f"a run of kind '{trainer.config.kind}'"
    if isinstance(trainer, KeepsWeights) or not isinstance(trainer.config, NamesRun):
        return LudusError(f"{kind} {words}")
    earlier = trainer.config.run
    return LudusError(
        f"{kind} keeps no weights of its own, for it works with those of {earlier}; give that run:"
        f" ludus {command} {quote(str(earlier))}"
    )
