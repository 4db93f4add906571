"""Ray's driver: a child process that starts or joins a cluster, and passes on what hosts say.

It is a child so that Ray's environment is set before Ray is imported, and so that whatever Ray does to the
process of its driver (handlers, limits, aborts) happens here.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from ludus.core.errors import LudusError
from ludus.process import talk
from ludus.process.child_main import Answer, Handler
from ludus.sweep.cluster.host import Host
from ludus.sweep.cluster.joined_cluster import join, last_line
from ludus.sweep.cluster.own_cluster import import_ray, start

_RECEIVE_SECONDS = 20.0
_LOOK_SECONDS = 1.0


def handlers() -> dict[str, Handler]:
    """Return the requests that this process handles."""
    return {"open": _open, "drive": _drive}


@dataclass
class _Remote:
    """An actor, as the driver holds it."""

    actor: Any
    is_placed: bool = False
    unsent: list[dict[str, Any]] = field(default_factory=list)
    """Messages of the sweep from before there was a worker."""

    def send(self, header: dict[str, Any]) -> None:
        """Pass a message to the worker, in order."""
        if self.is_placed:
            self.actor.send.options(concurrency_group="send").remote(json.dumps(header))
        else:
            self.unsent.append(header)


class Driver:
    """Starts hosts and passes messages between them and the sweep."""

    def __init__(self, ray: Any, given: Mapping[str, Any], daemons: list[psutil.Process]) -> None:
        self._ray, self._given, self._daemons = ray, given, daemons
        self._remotes: dict[int, _Remote] = {}
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        groups = {"send": 1, "receive": 1}
        self._host = ray.remote(concurrency_groups=groups)(Host)

    def drive(self) -> None:
        """Pass messages on until the sweep says that it has ended."""
        threading.Thread(target=self._listen, name="sweep", daemon=True).start()
        looked = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=_LOOK_SECONDS)
                if not event():
                    return
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                self._look()

    def _listen(self) -> None:
        """Take what the sweep says; its end is like a request to end."""
        with contextlib.suppress(EOFError):
            while (header := talk.hear())["do"] != "end":
                self._events.put(partial(self._obey, header))
        self._events.put(lambda: False)

    def _look(self) -> None:
        """Raise LudusError if Ray's own processes are gone; calls would wait for them for a minute."""
        for daemon in self._daemons:
            if not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE:
                raise LudusError("Ray has ended: one of the processes of its cluster is gone")

    def _obey(self, header: dict[str, Any]) -> bool:
        number = header["to"]
        if header["do"] == "start":
            self._start(number)
        elif number in self._remotes:
            remote = self._remotes[number]
            if header["do"] == "send":
                remote.send(header["header"])
            else:
                del self._remotes[number]
                self._ray.kill(remote.actor, no_restart=True)
        return True

    def _start(self, number: int) -> None:
        given = self._given
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0}
        options["num_gpus"] = given["gpus_per_worker"]
        if given["address"] is not None:
            # So that those of an earlier process are found.
            options |= {"name": f"host {os.getpid()} {number}", "namespace": given["namespace"]}
            if given["memory_gb"] is not None:
                options["memory"] = int(given["memory_gb"] * 2**30)
        actor = self._host.options(**options).remote()
        self._remotes[number] = _Remote(actor)
        about = {**given["about"], "name": f"sweep worker {number}"}
        self._await(number, actor.begin.remote(json.dumps(about)))

    def _await(self, number: int, reference: Any) -> None:
        def answered(future: Future[Any]) -> None:
            self._events.put(partial(self._take, number, future))

        reference.future().add_done_callback(answered)

    def _take(self, number: int, future: Future[Any]) -> bool:
        """Pass on what a host has answered, and ask it again."""
        remote = self._remotes.get(number)
        if remote is None:
            return True
        error = future.exception()
        if error is not None:
            del self._remotes[number]
            talk.say({"from": number, **_how_lost(error)})
            return True
        answer = json.loads(future.result())
        if not remote.is_placed:
            remote.is_placed = True
            talk.say({"from": number, "placed": answer})
            for header in remote.unsent:
                remote.send(header)
        elif answer["said"] or "died" in answer:
            talk.say({"from": number, **answer})
        receive = remote.actor.receive.options(concurrency_group="receive")
        if "died" not in answer:
            self._await(number, receive.remote(_RECEIVE_SECONDS))
        return True


def _how_lost(error: BaseException) -> dict[str, Any]:
    """Return how a host died: by its own work, or with what was around it."""
    words = " ".join(str(error).split())
    if "low on memory" in words or type(error).__name__ == "OutOfMemoryError":
        return {
            "said": [],
            "died": "out of memory: Ray killed it as its machine had too little left",
        }
    if type(error).__name__.startswith("RayTaskError"):
        return {"said": [{"error": {"type": "LudusError", "message": last_line(error)}}]}
    return {"said": [], "lost": f"its machine or its actor of Ray is gone ({type(error).__name__})"}


_opened: list[Driver] = []


def _open(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    """Start a cluster, or join one, and say what it has."""
    if header["address"] is None:
        ray, daemons = start(header)
    else:
        ray, daemons = join(header), []
    lock = Path(header["about"]["lock"])
    header["about"]["lock_text"] = lock.read_text()
    _opened.append(Driver(ray, header, daemons))
    return {"resources": ray.cluster_resources(), "pid": os.getpid()}, ()


def _drive(header: dict[str, Any], pieces: list[bytearray]) -> None:
    _opened[0].drive()
    if _opened[0]._given["address"] is not None:
        import_ray().shutdown()
    # What is left of a cluster of our own, the warden ends at once.
    os._exit(0)
