"""Pausing what executes several runs: a first signal lets them save and end, a second ends them at once."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

from ludus.process.signals import on_stop


@contextlib.contextmanager
def pausing(pause: Callable[[], None]) -> Iterator[None]:
    """Call `pause` at the first signal inside the block; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard() -> None:
        pause()
        with contextlib.suppress(OSError):
            sys.stderr.write("\nsaving the runs and stopping; once more stops at once\n")

    with on_stop(heard):
        yield
