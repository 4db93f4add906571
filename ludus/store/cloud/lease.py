"""Lease on a run in an object store: one process per run, renewed while it lives, checked at each save.

An object store has no lock that dies with its holder. A lease expires if it is not renewed for LEASE_SECONDS;
that of a process on this machine ends with the process. The age of a lease is measured by the store's clock,
as the difference of the times at which LOCK and a probe were written: the clocks of two machines may differ.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from ludus.core.errors import LudusError, RunError, RunTaken, StorageError
from ludus.store.cloud.connection import Connection

LEASE_SECONDS = 60.0
_NAME = "LOCK"
# Leases of this process; an own lease not in it has ended, even if LOCK could not be deleted.
_held: set[str] = set()


class Lease:
    """The lease of one run, in the object LOCK."""

    def __init__(self, connection: Connection, place: str) -> None:
        self._connection = connection
        self._place = place
        self._owner = os.urandom(16).hex()
        self._ended = threading.Event()

    def __enter__(self) -> Lease:
        """Take the lease, or raise RunError naming its holder."""
        self._refuse_holder(self._holder())
        self._renew()
        _held.add(self._owner)
        # If two processes come at once, the last writer wins.
        if self._holder().get("owner") != self._owner:
            _held.discard(self._owner)
            self._refuse_holder(self._holder())
        thread = threading.Thread(target=self._keep, name="ludus-lease", daemon=True)
        thread.start()
        return self

    def _refuse_holder(self, holder: dict[str, Any]) -> None:
        if holder and self._is_live(holder):
            raise RunError(
                f"{self._place} is in use by process {holder['pid']} on {str(holder['host'])[:80]};"
                f" stop it first, or, if that machine is gone, wait {LEASE_SECONDS:.0f} seconds"
            )

    def _holder(self) -> dict[str, Any]:
        """Return the content of LOCK; empty if it is missing or malformed."""
        if self._connection.size(_NAME) is None:
            return {}
        try:
            about = json.loads(self._connection.get(_NAME))
            about["pid"], about["since"] = int(about["pid"]), float(about["since"])
            about["renewed"], about["host"] = float(about["renewed"]), str(about["host"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}
        assert isinstance(about, dict)
        return about

    def _renew(self) -> None:
        about = {"owner": self._owner, "pid": os.getpid(), **_machine()}
        # This machine's time is for people, and for older versions, which compared it.
        times = {"since": psutil.Process().create_time(), "renewed": time.time()}
        self._connection.put(_NAME, json.dumps({**about, **times}).encode())

    def _keep(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / 4):
            try:
                if self._holder().get("owner") != self._owner:
                    return
                self._renew()
            except LudusError:
                # The connection may come back; if another process took the run, a save fails.
                continue

    def check(self) -> None:
        """Raise RunTaken if another process has taken the lease, StorageError if that is unknown."""
        if self._holder().get("owner") != self._owner:
            raise RunTaken(
                f"the LOCK of {self._place} was removed or replaced, so another process may write there"
                " while this process trained: it stops and writes nothing more; what was saved can be"
                " resumed from where it is now"
            )

    def is_held(self) -> bool:
        """Return whether a live process holds the lease; if no probe can be written, any LOCK counts."""
        holder = self._holder()
        try:
            return bool(holder) and self._is_live(holder)
        except StorageError:
            return self._connection.size(_NAME) is not None

    def _is_live(self, holder: dict[str, Any]) -> bool:
        if {name: holder.get(name) for name in _machine()} != _machine():
            return self._age() < LEASE_SECONDS
        if holder["pid"] == os.getpid():
            return holder.get("owner") in _held
        try:
            began = psutil.Process(holder["pid"]).create_time()
        except (psutil.Error, ValueError, OverflowError):
            return False
        # The process id may have been reused since.
        return bool(abs(began - holder["since"]) < 1.0)

    def _age(self) -> float:
        """Return the age of LOCK in seconds, by the store's clock."""
        probe = f"{_NAME}.tmp-{self._owner}"
        self._connection.put(probe, b"what time is it?")
        try:
            now = self._connection.modified(probe)
        finally:
            self._connection.delete(probe)
        put = self._connection.modified(_NAME)
        # If LOCK is gone by now, it was released.
        return math.inf if now is None or put is None else now - put

    def __exit__(self, *error: object) -> None:
        """Release the lease."""
        self._ended.set()
        _held.discard(self._owner)
        if self._holder().get("owner") == self._owner:
            self._connection.delete(_NAME)


@functools.cache
def _machine() -> dict[str, str]:
    """Return what identifies this machine; its host name alone may not be unique."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"host": socket.gethostname(), "boot": boot}
