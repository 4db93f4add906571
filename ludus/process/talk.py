"""Talk within a request: what a handler in a child process says to its parent before it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.process.frames import Frames

_open: list[Frames] = []


def begin(frames: Frames) -> None:
    """Talk over these pipes, as the child's main program does from its start."""
    _open[:] = [frames]


def say(header: Mapping[str, Any]) -> None:
    """Send the parent a message that answers nothing; `Child.receive` returns it."""
    _open[0].send(dict(header))


def hear() -> dict[str, Any]:
    """Return the parent's next message, waiting for it."""
    return _open[0].receive()[0]


def is_addressed() -> bool:
    """Return whether the parent has sent a message that was not heard yet."""
    return _open[0].wait(0)
