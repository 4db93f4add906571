"""Standard streams: make sure that standard input, output and error are open, if only to the null device.

A process may be started with any of them closed (`ludus train ... <&-`). The next file it opens then
gets that number, and a child process, whose own standard streams take these numbers, loses it.
"""

from __future__ import annotations

import os
import sys


def fill_standard_streams() -> None:
    """Open the null device in place of each closed standard stream."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # The system gives the lowest free number, which is this one.
            opened = os.open(os.devnull, os.O_RDWR)
            assert opened == fd
            os.set_inheritable(fd, True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
