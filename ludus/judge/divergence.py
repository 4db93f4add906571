"""Divergence guard: stop a run whose loss or gradient is not finite, while its last checkpoint is good."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ludus.core.errors import Diverged
from ludus.core.run import Run
from ludus.core.services import Log

_GUARDED = ("train/loss", "train/grad_norm", "train/epoch_loss")


class DivergenceGuard:
    """Checks the training metrics for a loss or a gradient norm that is NaN or infinite.

    A step along such a gradient is not taken (`ludus/nn/step.py`), so the weights are still good.
    """

    def __init__(self, *, remedy: str, guarded: Sequence[str] = _GUARDED) -> None:
        """`remedy` ends the error message, after the learning rate and max_grad_norm."""
        self._remedy = remedy
        self._guarded = tuple(guarded)

    def diverged(self, metrics: Mapping[str, float]) -> str | None:
        """Return the name of the first guarded metric that is not finite, if any."""
        for name in self._guarded:
            if not math.isfinite(metrics.get(name, 0.0)):
                return name
        return None

    def check(self, metrics: Mapping[str, float], opt_steps: int) -> None:
        """Raise Diverged if a guarded metric is not finite."""
        if (name := self.diverged(metrics)) is not None:
            raise Diverged(
                f"{name} became {metrics[name]} by opt_step {opt_steps}; lower the learning rate, set"
                f" max_grad_norm, or {self._remedy}"
            )


class WatchDivergence:
    """Observer that applies a divergence guard to the metrics logged at each boundary."""

    def __init__(
        self, guard: DivergenceGuard, log: Log, *, check: Callable[[], None] = lambda: None
    ) -> None:
        """`check` may inspect more than metrics, and raise."""
        self._guard, self._log, self._check = guard, log, check

    def __call__(self, run: Run) -> None:
        """Check the metrics written at this boundary."""
        if self._log.written_at == run.boundaries:
            self._check()
            self._guard.check(self._log.written, run.counters["opt_steps"])
