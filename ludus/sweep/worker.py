"""Worker process of a sweep: executes one run after the other, with everything imported once."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ludus.process import talk
from ludus.process.child_main import Answer, Handler
from ludus.sweep.curve import Point
from ludus.sweep.engine import Task
from ludus.sweep.run import execute


def handlers() -> dict[str, Handler]:
    """Return the requests that this process handles."""
    return {"greet": _greet, "run": _run, "pause": lambda header, pieces: None}


def _greet(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    """Limit the memory, if asked, and say that everything is imported."""
    if header["memory_gb"] is not None:
        limit = int(header["memory_gb"] * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return {"is_ready": True}, ()


def _run(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    task = Task(**header["task"])
    end = execute(task, _Line(waits=task.waits))
    return {"end": asdict(end)}, ()


class _Line:
    """The talk of a run with the sweep, over the pipes of this process."""

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits
        self._is_pausing = False

    def logged(self, point: Point) -> str | None:
        talk.say({"logged": {"counters": dict(point.counters), "value": point.value}})
        while self._waits:
            header = talk.hear()
            if header["do"] == "pause":
                self._is_pausing = True
                continue
            reason: str | None = header["reason"]
            return reason
        return None

    def sign(self, counters: Mapping[str, int]) -> None:
        talk.say({"sign": {name: value for name, value in counters.items() if value}})

    def is_pausing(self) -> bool:
        if talk.is_addressed():
            talk.hear()
            self._is_pausing = True
        return self._is_pausing
