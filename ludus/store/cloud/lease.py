"""One process per run in an object store: a lease, renewed while its holder lives and checked at each save.

There is no lock that dies with its holder there. A lease that was not renewed for LEASE_SECONDS has
ended; that of a process of this machine ends with the process. When it was renewed and what time it is
says the store, by when it was given LOCK and a probe: the clocks of two machines may differ.
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
from types import TracebackType
from typing import Any

import psutil

from ludus.core.errors import LudusError, RunError, RunTaken, StorageError
from ludus.store.cloud.connection import Connection

LEASE_SECONDS = 60.0
_NAME = "LOCK"
# The leases of this very process: one that it could not give back, for want of a connection, has ended.
_held: set[str] = set()


class Lease:
    """The lease of one run, in the object LOCK."""

    def __init__(self, connection: Connection, place: str) -> None:
        self._connection = connection
        self._place = place
        self._owner = os.urandom(16).hex()
        self._ended = threading.Event()

    def __enter__(self) -> Lease:
        """Take the lease, or raise RunError naming who holds it."""
        self._refuse_holder(self._holder())
        self._renew()
        _held.add(self._owner)
        # Of two that came at once, the one who wrote last has it.
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
        """Return what LOCK says; nothing where it is not there or says nothing plain."""
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
        # The time of this machine is for people, and for an earlier ludus, which compared it.
        times = {"since": psutil.Process().create_time(), "renewed": time.time()}
        self._connection.put(_NAME, json.dumps({**about, **times}).encode())

    def _keep(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / 4):
            try:
                if self._holder().get("owner") != self._owner:
                    return
                self._renew()
            except LudusError:
                # The connection may come back; if another took the run by then, the next save finds it.
                continue

    def check(self) -> None:
        """Raise RunTaken if another process has taken the lease, StorageError if that cannot be known."""
        if self._holder().get("owner") != self._owner:
            raise RunTaken(
                f"the LOCK of {self._place} was removed or replaced, so another process may write there"
                " while this process trained: it stops and writes nothing more; what was saved can be"
                " resumed from where it is now"
            )

    def is_held(self) -> bool:
        """Return whether a live process holds the lease; LOCK is believed where nothing may be put."""
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
        # Another process may have been given the number since.
        return bool(abs(began - holder["since"]) < 1.0)

    def _age(self) -> float:
        """Return how many seconds ago LOCK was put, by the clock of the store."""
        probe = f"{_NAME}.tmp-{self._owner}"
        self._connection.put(probe, b"what time is it?")
        try:
            now = self._connection.modified(probe)
        finally:
            self._connection.delete(probe)
        put = self._connection.modified(_NAME)
        # One that is gone meanwhile was given back.
        return math.inf if now is None or put is None else now - put

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the next process in."""
        self._ended.set()
        _held.discard(self._owner)
        if self._holder().get("owner") == self._owner:
            self._connection.delete(_NAME)


@functools.cache
def _machine() -> dict[str, str]:
    """Return what tells this machine from others, of which some may have its name."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"host": socket.gethostname(), "boot": boot}
