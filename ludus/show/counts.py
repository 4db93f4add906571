"""How far a run has come, in words: its counters, the most telling ones first."""

from __future__ import annotations

from collections.abc import Mapping

from ludus.core.counters import SHARED

_FIRST = ("epoch", "iteration", "opt_steps", "env_steps")


def progress(counters: Mapping[str, int]) -> str:
    """Return the counters as `epoch 3, opt_steps 1,200`; examples and tokens are left out."""
    shown = [*_FIRST, *(name for name in counters if name not in SHARED)]
    return ", ".join(f"{name} {counters[name]:,}" for name in shown if name in counters)
