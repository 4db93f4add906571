"""Host: the actor that holds one worker of a sweep on a machine of a cluster, and passes on what is said."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ludus.process.child import Child, ChildDied, ChildFailed, ChildHung
from ludus.version import VERSION

WORKER = "ludus.sweep.worker"


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all machines of a sweep."""
    return {
        "ludus": VERSION, "torch": version("torch"), "python": platform.python_version(),
    }  # fmt: skip


class Host:
    """Arguments and results are JSON: Ray's own serialisation sees text alone."""

    def begin(self, text: str) -> str:
        """Look at this machine, and start the worker if the sweep can be worked on here."""
        given = json.loads(text)
        found = {
            "host": socket.gethostname(), "pid": os.getpid(), "versions": versions(),
            "sees": is_same_file(Path(given["lock"]), given["lock_text"]),
        }  # fmt: skip
        if found["sees"] and found["versions"] == given["versions"]:
            self._start(given)
        return json.dumps(found)

    def _start(self, given: Mapping[str, Any]) -> None:
        # Paths in configs are relative to where the sweep was begun.
        if os.path.isdir(given["cwd"]):
            os.chdir(given["cwd"])
        greeting = given["greeting"]
        sys.path += [p for p in greeting["path"] if p not in sys.path and os.path.isdir(p)]
        greeting |= {"path": list(sys.path), "python_path": os.environ.get("PYTHONPATH")}
        self._child = Child(WORKER, name=given["name"], greeting=greeting)

    def send(self, text: str) -> None:
        """Pass a message to the worker; that it is gone, `receive` tells."""
        with contextlib.suppress(ChildDied, ChildHung):
            self._child.send(json.loads(text))

    def receive(self, seconds: float) -> str:
        """Return what the worker has said, waiting at most so long, and why it died if it did."""
        said: list[dict[str, Any]] = []
        try:
            while self._child.wait(0.0 if said else seconds):
                try:
                    said.append(self._child.receive()[0])
                except ChildFailed as error:
                    said.append({"error": {"type": error.kind, "message": str(error)}})
        except (ChildDied, ChildHung) as error:
            return json.dumps({"said": said, "died": str(error)})
        return json.dumps({"said": said})


def is_same_file(path: Path, text: str) -> bool:
    """Return whether this machine sees the lock of the sweep as the sweep has written it."""
    try:
        return path.read_text() == text
    except OSError:
        return False
