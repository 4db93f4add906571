"""The sweep's connection with Ray: a driver in a child process, and workers behind it."""

from __future__ import annotations

import hashlib
import os
import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.core.errors import LudusError
from ludus.process.child import Child, ChildDied, ChildFailed, ChildHung, own_greeting
from ludus.process.frames import Message
from ludus.sweep.cluster.host import versions
from ludus.sweep.cluster.joined_cluster import TOKEN_HINT
from ludus.sweep.pool import WorkerLost

_START_SECONDS = 180.0
_JOIN_SECONDS = 60.0
_CLOSE_SECONDS = 30.0


@dataclass(eq=False)
class RemoteWorker:
    """Connection with a worker on a machine of the cluster."""

    cluster: RayCluster
    number: int
    inbox: deque[dict[str, Any] | Exception] = field(default_factory=deque)
    is_placed: bool = False
    """Whether Ray has found room for it."""

    def send(self, header: dict[str, Any]) -> None:
        """Send a request to the worker; that it is gone, `receive` tells."""
        self.cluster.say({"do": "send", "to": self.number, "header": header})

    def receive(self) -> Message:
        """Return the next thing that it has said, or raise how it died."""
        said = self.inbox.popleft()
        if isinstance(said, Exception):
            raise said
        if "error" in said:
            raise ChildFailed(said["error"]["message"], said["error"]["type"])
        return said, []

    def wait(self, timeout: float) -> bool:
        """Return whether there is something to receive within `timeout` seconds."""
        return self in self.cluster.ready_among([self], timeout)

    def give_up(self, timeout: float) -> ChildHung:
        """Kill it, which has said nothing for so long."""
        self.kill()
        return ChildHung(f"sweep worker {self.number} did not answer within {timeout:g} seconds")

    def kill(self) -> None:
        """Kill it at once, with the actor that holds it."""
        self.cluster.forget(self)


class RayCluster:
    """A cluster that ends with the sweep, or one that was joined by its address."""

    def __init__(
        self, *, address: str | None, workers: int, num_gpus: int, gpus_per_worker: float,
        memory_gb: float | None, directory: str,
    ) -> None:  # fmt: skip
        self._address, self._directory = address, os.path.abspath(directory)
        greeting = own_greeting()
        # The lock of the sweep holds when it was taken, so that no other directory has the same one.
        about = {
            "lock": f"{self._directory}/LOCK",
            "cwd": os.getcwd(),
            "greeting": greeting,
            "versions": versions(),
        }
        watched, held = os.pipe()
        self._warden = watched
        try:
            self._child = Child(
                "ludus.sweep.cluster.driver", name="the driver of Ray", fds=[held],
                greeting={**greeting, "plugins": []},
            )  # fmt: skip
        finally:
            os.close(held)
        self._workers: dict[int, RemoteWorker] = {}
        self._count = 0
        namespace = f"ludus-{hashlib.sha256(self._directory.encode()).hexdigest()[:16]}"
        request = {
            "do": "open", "address": address, "workers": workers, "num_gpus": num_gpus,
            "gpus_per_worker": gpus_per_worker, "memory_gb": memory_gb,
            "namespace": namespace, "about": about, "warden": held,
        }  # fmt: skip
        try:
            timeout = _START_SECONDS if address is None else _JOIN_SECONDS
            answer, _ = self._child.ask(request, timeout=timeout)
            self._child.send({"do": "drive"})
        except ChildFailed as error:
            self.close()
            raise LudusError(str(error)) from error
        except (ChildDied, ChildHung) as error:
            self.close()
            raise LudusError(self._why_not(error)) from error
        self.resources: Mapping[str, float] = answer["resources"]

    def start(self) -> RemoteWorker:
        """Ask Ray for room for one more worker."""
        worker = RemoteWorker(self, self._count)
        self._count += 1
        self._workers[worker.number] = worker
        self.say({"do": "start", "to": worker.number})
        return worker

    def say(self, header: dict[str, Any]) -> None:
        """Send something to the driver."""
        try:
            self._child.send(header)
        except (ChildDied, ChildHung) as error:
            raise self._ended(error) from error

    def ready_among(self, workers: Sequence[RemoteWorker], seconds: float) -> list[RemoteWorker]:
        """Return the workers that have said something, waiting for the first."""
        deadline = time.monotonic() + seconds
        while True:
            ready = [worker for worker in workers if worker.inbox]
            left = 0.0 if ready else max(0.0, deadline - time.monotonic())
            if not self._child.wait(left):
                return ready
            self._hear()

    def _hear(self) -> None:
        try:
            header, _ = self._child.receive()
        except (ChildDied, ChildHung, ChildFailed) as error:
            raise self._ended(error) from error
        worker = self._workers.get(header["from"])
        if worker is None:
            return
        if "placed" in header:
            worker.is_placed = True
            check_machine(header["placed"], self._directory)
            return
        worker.inbox += header["said"]
        if "died" in header:
            worker.inbox.append(ChildDied(header["died"], None))
        if "lost" in header:
            worker.inbox.append(WorkerLost(header["lost"], None))

    def _why_not(self, error: Exception) -> str:
        """Return why Ray could not be started or joined."""
        if self._address is None:
            return f"Ray cannot be started: {_first_line(error)}"
        return (
            f"'engine.address' is {self._address}, and this cannot be joined: {_first_line(error)};"
            f" {TOKEN_HINT}"
        )

    def _ended(self, error: Exception) -> LudusError:
        return LudusError(f"{_first_line(error)}; fix this, then run the same command again")

    def forget(self, worker: RemoteWorker) -> None:
        """Kill a worker, of which nothing more is heard."""
        if self._workers.pop(worker.number, None) is not None and self._child.is_open:
            self.say({"do": "kill", "to": worker.number})

    def close(self) -> None:
        """End the driver and, if the cluster is our own, all of it; wait until nothing is left."""
        if self._child.is_open:
            try:
                self._child.send({"do": "end"})
                deadline = time.monotonic() + _CLOSE_SECONDS
                while time.monotonic() < deadline and self._child.wait(1.0):
                    self._child.receive()
            except (ChildDied, ChildHung, ChildFailed):
                pass
            self._child.kill()
        if self._warden >= 0:
            # Its other end is closed when the warden has removed everything.
            select.select([self._warden], [], [], _CLOSE_SECONDS)
            os.close(self._warden)
            self._warden = -1


def check_machine(found: Mapping[str, Any], directory: str) -> None:
    """Raise LudusError if a machine of the cluster is not as this one, or does not see the directory."""
    host = found["host"]
    for name, own in versions().items():
        if found["versions"][name] != own:
            raise LudusError(
                f"the machine {host} of the cluster has {name} {found['versions'][name]}, and this one"
                f" has {own}; install the same version on all"
            )
    if not found["sees"]:
        raise LudusError(
            f"the machine {host} of the cluster does not see {directory}; keep the sweep in a directory that"
            " all machines share under the same path, with --root"
        )


def _first_line(error: Exception) -> str:
    """Return an error without what its process printed last, which is Ray's and long."""
    return str(error).partition("\n")[0].removesuffix("; it printed last:")
