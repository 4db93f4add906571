"""A clock that goes by what happens: no test has to wait for it, or is late on a slow machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ludus.judge import async_evaluator
from ludus.process.child import Child


def pass_once(patch: pytest.MonkeyPatch, has_happened: Callable[[], bool], seconds: float) -> None:
    """Let so many seconds pass at once for whoever waits for an evaluation, after something has happened.

    That is the first time only: who waits again waits by the real clock.
    """
    wait, passed = Child.wait, [0.0]

    def wait_or_pass(child: Child, timeout: float) -> bool:
        is_time = passed == [0.0] and has_happened()
        has_answered = wait(child, 0.05 if is_time else timeout)
        if is_time and not has_answered:
            passed[0] = seconds
        return has_answered

    patch.setattr(Child, "wait", wait_or_pass)
    patch.setattr(
        async_evaluator, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    )
