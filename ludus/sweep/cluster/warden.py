"""Warden: a small process that ends a cluster, and removes its files, as soon as the driver is gone.

Ray's own processes notice the end of their driver, but some of them take a minute.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Sequence

import psutil

_SECONDS = 20.0
_PAUSE = 0.02


def fork_warden(folder: str, *, kept: Sequence[int]) -> None:
    """Fork it from the driver, before that has any thread; it holds the descriptors `kept` until its end."""
    # The other end is never closed: the system does it when the driver is gone, however that happens.
    watched, _ = os.pipe()
    driver = os.getpid()
    if os.fork():
        os.close(watched)
        for descriptor in kept:
            os.close(descriptor)
        return
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        for name in os.listdir("/dev/fd"):
            if int(name) not in (0, 1, 2, watched, *kept):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        select.select([watched], [], [])
        end_session(driver)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def end_session(number: int) -> None:
    """Kill all processes of a session, and what they have started, until none is left.

    Ray's own have several groups but one session; the workers that hosts start have sessions of their own.
    """
    deadline = time.monotonic() + _SECONDS
    while (left := _members(number)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def _members(number: int) -> set[int]:
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) != number:
                continue
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found |= {pid, *(child.pid for child in process.children(recursive=True))}
    return found
