"""Reports: the stages that evaluate, record and save, as every family has them after its rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ludus.core.run import Run
from ludus.core.services import Weights
from ludus.judge.divergence import DivergenceGuard
from ludus.judge.judge import Judge


class Training(Protocol):
    """The sums of the training metrics since the last record, as `ludus.nn.update.Update` keeps them."""

    @property
    def num_counted(self) -> int:
        """How many updates the sums are of."""

    def metrics(self) -> Mapping[str, float]:
        """Return the mean of each metric since the last record."""


class Reports:
    """The work of the stages evaluate, record, save and finish.

    Nothing is evaluated once the loss has diverged: such weights must not become the best, and the record
    that follows ends the run.
    """

    def __init__(
        self,
        guard: DivergenceGuard,
        training: Training,
        *,
        evaluate: Callable[[Run], Mapping[str, Any]],
        take: Callable[[Run], Mapping[str, float]],
        weights: Callable[[], Weights],
        judge: Judge | None = None,
        rates: Callable[[Run], None] | None = None,
    ) -> None:
        """`evaluate` returns the metrics of an evaluation, which `judge` judges if there is one here.

        `take` returns the metrics of a record and resets them, `rates` logs what depends on the clock.
        `weights` are those that `save` and a best model keep.
        """
        self._guard, self._training, self._judge = guard, training, judge
        self._evaluate, self._take, self._rates = evaluate, take, rates
        self._weights = weights

    def evaluate(self, run: Run) -> Mapping[str, Any]:
        """Evaluate, and judge the outcome."""
        if self._guard.diverged(self._training.metrics()) is not None:
            return {}
        metrics = self._evaluate(run)
        if self._judge is not None:
            self._judge.update(run, metrics, lambda score: self._weights())
        return metrics

    def record(self, run: Run) -> None:
        """Write the metrics since the last record; raise Diverged if the loss is not finite."""
        metrics = self._take(run)
        run.record(metrics)
        if self._rates is not None:
            self._rates(run)
        run.log.write(run)
        self._guard.check(metrics, run.counters["opt_steps"])

    def save(self, run: Run) -> None:
        """Keep the current weights in models/<opt_steps>."""
        keep(run, f"models/{run.counters['opt_steps']}", self._weights())

    def finish(self, run: Run) -> None:
        """Write the last record, if it is not yet written."""
        if run.log.has_news or self._training.num_counted:
            self.record(run)


def keep(run: Run, name: str, weights: Weights) -> None:
    """Keep weights under a name, with the counters of the run."""
    run.keep_model(name, weights, {"counters": {k: n for k, n in run.counters.items() if n}})
