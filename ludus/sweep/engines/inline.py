"""Runs a sweep in this process, one run after the other: for a debugger, and for trainers of a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.sweep.curve import Point
from ludus.sweep.engine import MakeTrainer, RunListener, Task
from ludus.sweep.run import execute


@register("sweep_engine", "inline")
class InlineEngine:
    """Nothing is killed that hangs or takes too much memory: it is this process."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["inline"]
        """In this process, one run after the other."""

    capacity = 1
    is_here = True

    def __init__(self, config: Config, *, make_trainer: MakeTrainer | None = None) -> None:
        self._make_trainer = make_trainer
        self._task: Task | None = None
        self._is_pausing = False

    def open(self, listener: RunListener, directory: str) -> None:
        self._listener = listener

    def launch(self, task: Task) -> None:
        assert self._task is None, "one run at a time"
        self._task = task

    def work(self, seconds: float) -> None:
        task, self._task = self._task, None
        if task is not None:
            end = execute(task, _Here(self, task), make_trainer=self._make_trainer)
            self._listener.ended(task, end)

    def pause(self) -> None:
        self._is_pausing = True

    def close(self) -> None:
        self._task = None


class _Here:
    """The talk of a run with the sweep in the same process."""

    def __init__(self, engine: InlineEngine, task: Task) -> None:
        self._engine, self._task = engine, task

    def logged(self, point: Point) -> str | None:
        reason = self._engine._listener.logged(self._task, point)
        return reason if self._task.waits else None

    def sign(self, counters: Mapping[str, int]) -> None: ...

    def is_pausing(self) -> bool:
        return self._engine._is_pausing
