"""Asynchronous evaluation in a worker process during training; timing cannot change its outcome.

launch     sends a copy of the weights to the worker; training continues
collect    waits for the result of that launch, at a boundary the trainer fixes
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ludus.config.base import TrainerConfig
from ludus.core import states
from ludus.core.abilities import EvaluationJob
from ludus.core.errors import ConfigError, Interrupted, LudusError
from ludus.judge import worker
from ludus.judge.evaluator import Outcome, RunsEval, as_outcome
from ludus.process.child import Child, ChildDied, ChildFailed, ChildHung
from ludus.process.messages import pack

_MAX_REASONS = 5
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Launch:
    """A pending evaluation: the counters and the weights at its launch."""

    counters: dict[str, int]
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class Collected:
    """The outcome of an evaluation, with the counters and the weights at its launch."""

    counters: dict[str, int]
    weights: dict[str, Tensor]
    metrics: dict[str, float]
    is_lost: bool
    """Whether there is no result; every metric is then NaN."""


class AsyncEvaluator(RunsEval):
    """Evaluates in a worker process, with at most one pending evaluation, which is its state.

    A worker that dies, hangs or fails is replaced, a bounded number of times for each evaluation.
    After that the evaluation is done in this process, unless it could crash or hang it too. If there
    is no result in the end, the metrics are NaN and the run reports that it is not exact.

    AsyncEvaluator(config)    evaluates as runs of this config do: trainer.set_evaluator takes it

    The worker reads the config, finds the trainer's class by its kind and calls its
    `evaluation_job` (`ludus/core/abilities.py`), so a trainer of any family can have one: it lists the
    evaluator among its parts, launches in one stage and collects in a later one.
    """

    def __init__(
        self,
        config: TrainerConfig | None = None,
        *,
        score: object = None,
        timeout: float = 300.0,
        max_restarts: int = 2,
        is_interrupted: Callable[[], bool] = lambda: False,
        on_event: Callable[[str], None] = lambda text: None,
    ) -> None:
        if config is None or score is not None:
            raise ConfigError(
                "AsyncEvaluator takes a config, from which another process rebuilds what it evaluates; a"
                " function stays in this one: ludus.Evaluator(score=function)"
            )
        self.config = config
        self.is_interrupted = is_interrupted
        """Polled while waiting: a run that is to pause must not wait for the result."""
        self.on_event = on_event
        """Called with a message whenever a worker fails or a result is missing."""
        self._job: EvaluationJob = worker.job_of(config)
        self._plain = config.model_dump(mode="json")
        self._timeout = timeout
        self._max_restarts = max_restarts
        self._worker: Child | None = None
        self._is_ready = False
        """Whether the worker has answered yet."""
        self._pending: Launch | None = None
        self._sent_at: float | None = None
        """Time at which the pending evaluation was sent to the worker; None if it was not sent yet."""
        self._reasons: list[str] = []

    @property
    def is_pending(self) -> bool:
        """Whether there is an evaluation to collect."""
        return self._pending is not None

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, if there is one."""
        return None if self._worker is None else self._worker.pid

    def open(self) -> None:
        """Start the worker, so that the first launch need not wait for it; send the pending evaluation."""
        # A worker that cannot be started is handled where the result is needed.
        with contextlib.suppress(ChildDied, ChildHung):
            self._start()
            if self._pending is not None and self._sent_at is None:
                self._send(self._pending)

    def check(self) -> None:
        """Raise ConfigError if the worker cannot rebuild what it is to evaluate; wait for its answer."""
        self._start().send({"do": "rebuild", "config": self._plain})
        try:
            worker = self._start()
            # The worker greets once, after it has started.
            for _ in ("rebuild",) if self._is_ready else ("greet", "rebuild"):
                self._answer(worker, time.monotonic(), _START_SECONDS)
            self._is_ready = True
        except ChildFailed as error:
            self._stop()
            raise ConfigError(
                f"the evaluation process cannot rebuild what it is to evaluate: {error}; put the"
                " classes and registrations that the config needs into a module of their own and load"
                " it with --plugin that_module (ludus.load_plugin('that_module') in a script), or"
                " evaluate in this process (evaluation.asynchronous: false)"
            ) from error

    def evaluate(self, agent: object) -> Outcome:
        """Return the score and the metrics of this agent or model, computed in the worker; wait for them."""
        model: Any = agent
        self.launch({}, model.weights() if hasattr(model, "weights") else model.state_dict())
        done = self.collect()
        if done is None or done.is_lost:
            raise LudusError(f"the evaluation gave no result: {self._reasons[-1]}")
        return as_outcome(done.metrics, metric=next(iter(self._job.metrics)))

    def launch(self, run_counters: Mapping[str, int], weights: Mapping[str, Tensor]) -> None:
        """Start evaluating a copy of these weights."""
        if self._pending is not None:
            raise LudusError("an evaluation is pending already; collect it before the next launch")
        for name, tensor in weights.items():
            if not hasattr(tensor, "detach"):
                raise LudusError(
                    f"launch takes tensors by name, and '{name}' is a {type(tensor).__name__}; give the"
                    f" tensors of several networks as '{name}.weight' and so on"
                )
        copied = {name: t.detach().to("cpu", copy=True) for name, t in weights.items()}
        self._pending = Launch(dict(run_counters), copied)
        self._sent_at = None
        self.open()

    def collect(self) -> Collected | None:
        """Wait for the pending evaluation and return its outcome; None if nothing was launched.

        Raises Interrupted if the run is asked to pause; the evaluation is then still pending.
        """
        if self._pending is None:
            return None
        launch, num_failures = self._pending, 0
        while True:
            try:
                metrics = self._result(launch)
                break
            except (ChildDied, ChildHung, ChildFailed) as error:
                self._stop()
                num_failures += 1
                self.on_event(f"evaluation worker failed ({num_failures}): {error}")
                if num_failures > self._max_restarts:
                    metrics = self._last_resort(launch, error)
                    break
        self._pending = self._sent_at = None
        is_lost = metrics is None
        if metrics is None:
            metrics = dict.fromkeys(self._job.metrics, math.nan)
        return Collected(launch.counters, launch.weights, metrics, is_lost)

    def _result(self, launch: Launch) -> dict[str, float] | None:
        """Return the metrics of this launch from the worker, sending it first if necessary."""
        worker = self._start()
        if self._sent_at is None:
            self._send(launch)
        if not self._is_ready:
            self._answer(worker, time.monotonic(), _START_SECONDS)
            # The time to start does not count against the timeout.
            self._is_ready, self._sent_at = True, time.monotonic()
        assert self._sent_at is not None
        header = self._answer(worker, self._sent_at, self._timeout)
        metrics: dict[str, float] = header["metrics"]
        return metrics

    def _answer(self, worker: Child, since: float, seconds: float) -> dict[str, Any]:
        # A signal does not end the wait by itself, so it is polled once a second.
        while not worker.wait(min(1.0, max(0.0, since + seconds - time.monotonic()))):
            if self.is_interrupted():
                raise Interrupted
            if time.monotonic() >= since + seconds:
                raise worker.give_up(seconds)
        return worker.receive()[0]

    def _last_resort(self, launch: Launch, error: LudusError) -> dict[str, float] | None:
        """Evaluate in this process if that is safe; otherwise record that there is no result."""
        if _may_try_here(error):
            try:
                with _one_thread():
                    found = self._job.evaluate(launch.weights, is_interrupted=self.is_interrupted)
                    return dict(found)
            except Exception as here:
                if isinstance(here, Interrupted):
                    raise
                error = LudusError(f"{type(here).__name__}: {here}")
        when = ", ".join(f"{name} {value}" for name, value in launch.counters.items() if value)
        reason = f"the evaluation launched at {when or 'the start'} gave no result: {error}"
        self._reasons = [*self._reasons, reason.splitlines()[0]][-_MAX_REASONS:]
        self.on_event(reason)
        return None

    def _start(self) -> Child:
        if self._worker is None or not self._worker.is_open:
            self._stop()
            self._worker = Child(worker.__name__, name="the evaluation worker")
            self._is_ready = False
            self._worker.send({"do": "greet"})
        return self._worker

    def _send(self, launch: Launch) -> None:
        plain, data = pack(launch.weights)
        request = {"do": "evaluate", "config": self._plain, "weights": plain}
        self._start().send(request, [data])
        self._sent_at = time.monotonic()

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._worker = self._sent_at = None

    def state_dict(self) -> dict[str, Any]:
        """Return the pending evaluation, and the reasons for missing results."""
        pending = None
        if (launch := self._pending) is not None:
            pending = {"counters": launch.counters, "weights": launch.weights}
        return {"pending": pending, "reasons": self._reasons}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the pending evaluation; `open` or `collect` launches it again."""
        states.check_keys(state, "pending", "reasons")
        reasons, pending = states.texts(state, "reasons"), None
        if state["pending"] is not None:
            saved = states.mapping(state, "pending")
            with states.within("pending"):
                states.check_keys(saved, "counters", "weights")
                weights = states.mapping(saved, "weights")
                for name, tensor in weights.items():
                    if not isinstance(tensor, Tensor):
                        raise states.StateError(f"weights/{name}", "is not a tensor")
                copied = {name: tensor.clone() for name, tensor in weights.items()}
                pending = Launch(states.counts(saved, "counters"), copied)
        if self._sent_at is not None:
            self._stop()
        self._pending, self._reasons = pending, reasons

    def inexact_because(self) -> list[str]:
        """Return why this run is not exact: evaluations without a result."""
        return list(self._reasons)

    def close(self) -> None:
        """End the worker; a pending evaluation stays pending."""
        if self._worker is not None and self._sent_at is None:
            self._worker.close()
        self._stop()


def _may_try_here(error: LudusError) -> bool:
    """Return whether the failure of the worker cannot take down this process as well.

    A raised error is safe to raise here, and a killed worker was ended from outside. But an env that
    crashes or hangs its process would do the same to the training process.
    """
    if isinstance(error, ChildDied):
        return error.exit_code in (None, -signal.SIGKILL, -signal.SIGTERM)
    return isinstance(error, ChildFailed)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread, as the worker does: the last bits can depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
