"""Errors that ludus raises on purpose; each message names the thing, its value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LudusError(Exception):
    """A mistake the user can fix; the command line prints it as one sentence, without a traceback."""


class ConfigError(LudusError):
    """A config file, or a value in it, is wrong."""


class PlanError(LudusError):
    """A plan is not a well-formed tree, or a cursor does not fit it."""


class HookError(LudusError):
    """A hook fits no node of the plan, or takes arguments it will not be given."""


class RunError(LudusError):
    """A run directory cannot be used as asked."""


class RunTaken(RunError):
    """This process lost its run directory: it was moved or removed, or its lock was."""


class StorageError(LudusError):
    """A file of a run could not be read or written."""


class CheckpointError(LudusError):
    """No checkpoint can be trusted, or one does not fit this trainer."""


class Diverged(LudusError):
    """Training produced NaN or an infinite number."""


class Interrupted(Exception):
    """The run pauses, by a signal or because a stage waits; a checkpoint is saved and it can be resumed."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python or of torch says that there is not enough memory."""
    # Torch has an exception type for this only on GPUs, and may not be imported here.
    said = ("can't allocate memory", "Storage size calculation overflowed")
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_named or any(words in str(error) for words in said)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the known name closest to this one, or a list of the known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Known: {', '.join(names)}." if names else ""
