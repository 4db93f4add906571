"""Logger: collects the metrics of stages and writes them, aggregated, to every back end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.config.base import LoggerSection, StrictConfig, validate
from ludus.config.registry import find
from ludus.core import counters, states
from ludus.core.errors import LudusError
from ludus.core.run import Every, Run
from ludus.core.services import Log
from ludus.session.backend import Backend, Event, StartedBackend
from ludus.session.record import AXES, FINEST, Record, axis_of
from ludus.show.report.series import NOT_SCALARS
from ludus.store.storage import Storage


class Logger:
    """Collects scalars, texts, histograms and images between two writes; drops nothing.

    Scalars of the same name are averaged. Unwritten metrics are state: the Logger is a part, and saving it
    changes nothing.
    """

    class Config(StrictConfig):
        """Back ends of a logger."""

        backends: list[LoggerSection]
        """Where metrics go besides metrics.jsonl, which is always written."""

    def __init__(self, config: Config | Mapping[str, Any]) -> None:
        if not isinstance(config, Logger.Config):
            config = validate(Logger.Config, config, source="Logger config")
        self.config = config
        self._backends: list[Backend] = []
        self._before: list[Callable[[Run], None]] = []
        self.reset()

    def reset(self) -> None:
        """Drop everything from an earlier run."""
        self.written: dict[str, float] = {}
        """Scalars of the last write."""
        self.written_at = -1
        """Boundary of the last write: observers use `written` only there."""
        self._axis: str | None = None
        """The x axis of the run's plots, chosen at the first write at which a counter has moved."""
        self._scalars: dict[str, list[float | Tensor]] = {}
        self._texts: dict[str, list[str]] = {}
        self._histograms: dict[str, Tensor] = {}
        self._images: dict[str, Tensor] = {}
        self._rates: dict[str, float] = {}
        self._started = self._last_time = time.monotonic()
        self._started_cpu = time.process_time()
        self._last_counters: Mapping[str, int] = {}

    def check(self) -> None:
        """Raise LudusError if a back end lacks what it needs, before a run has a directory."""
        sections: Sequence[Any] = self.config.backends
        for section in sections:
            check = getattr(find("logger", section.kind), "check", None)
            if check is not None:
                check(section)

    def open(self, storage: Storage, *, tell: Event | None = None) -> None:
        """Start the back ends; JSONL is always the first."""
        sections = [find("logger", "jsonl").Config(kind="jsonl"), *self.config.backends]
        for section in {section.kind: section for section in sections}.values():
            self._backends.append(find("logger", section.kind)(section, storage))
        for backend in self._backends:
            if isinstance(backend, StartedBackend):
                backend.start(tell or _drop)

    def attach(self, backend: Backend, *, before: Callable[[Run], None] | None = None) -> None:
        """Add a back end: the display, or one of the user's.

        `before` is called at each write, before anything is read from the device.
        """
        self._backends.append(backend)
        if before is not None:
            self._before.append(before)

    def log(self, name: str, value: float | Tensor) -> None:
        """Add one value of a scalar. A tensor stays on its device until the next write."""
        values = self._scalars.get(name)
        if values is None:
            _check_name(name)
            values = self._scalars[name] = []
        values.append(value)

    def record(self, metrics: Mapping[str, Any] | None) -> None:
        """Add the metrics that a stage returned."""
        if not metrics:
            return
        for name, value in metrics.items():
            if name in self._scalars:
                self._scalars[name].append(value)
            else:
                self.log(name, value)

    def rate(self, name: str, value: float) -> None:
        """Set a rate or a duration for the next write; it depends on the clock, so it is not state."""
        self._rates[name] = value

    def text(self, name: str, text: str) -> None:
        """Add a piece of text; every piece is written."""
        _check_name(name)
        self._texts.setdefault(name, []).append(text)

    def histogram(self, name: str, values: Tensor) -> None:
        """Set the values of a histogram for the next write; the last call counts."""
        _check_name(name)
        self._histograms[name] = values.detach().flatten().float().cpu().clone()

    def image(self, name: str, image: Tensor) -> None:
        """Set an image, uint8 of shape (channels, height, width), for the next write."""
        _check_name(name)
        if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3, 4):
            raise LudusError(
                f"image '{name}' is {image.dtype} of shape {tuple(image.shape)};"
                " it must be uint8 of shape (1, 3 or 4, height, width)"
            )
        self._images[name] = image.detach().cpu().clone()

    def write(self, run: Run) -> None:
        """Write everything collected since the last write to every back end."""
        for begin in self._before:
            begin(run)
        values = {name: _floats(name, given) for name, given in self._scalars.items()}
        scalars = {name: _mean(numbers) for name, numbers in values.items()}
        moved = {name: value for name, value in run.counters.items() if value}
        self._choose_axis(moved)
        record = Record(
            moved,
            scalars,
            self._timing(moved),
            self._texts,
            self._histograms,
            self._images,
            values,
            tuple(run.counters),
            self._axis,
        )
        self._scalars, self._texts, self._histograms, self._images = {}, {}, {}, {}
        self.written, self.written_at = scalars, run.boundaries
        for backend in self._backends:
            backend.write(record)

    def write_past(
        self, run: Run, counters: Mapping[str, int], scalars: Mapping[str, float]
    ) -> None:
        """Write metrics of an earlier moment that arrived late; collected metrics are left alone."""
        counts = {name: value for name, value in counters.items() if value}
        numbers = {name: float(value) for name, value in scalars.items()}
        self._choose_axis(run.counters)
        record = Record(counts, numbers, counter_names=tuple(run.counters), axis=self._axis)
        self.written, self.written_at = dict(record.scalars), run.boundaries
        for backend in self._backends:
            backend.write(record)

    def _choose_axis(self, counters: Mapping[str, int]) -> None:
        self._axis = self._axis or axis_of(counters)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._scalars or self._texts or self._histograms or self._images)

    def _timing(self, counters: Mapping[str, int]) -> dict[str, float]:
        now = time.monotonic()
        elapsed = max(now - self._last_time, 1e-9)
        # Of all threads of this process; env workers and other children are not counted.
        cpu = time.process_time() - self._started_cpu
        clocks = {"seconds": now - self._started, "cpu_seconds": cpu}
        timing = dict(clocks)
        for name in ("env_steps", "opt_steps", "examples", "tokens"):
            gained = counters.get(name, 0) - self._last_counters.get(name, 0)
            if gained > 0 and self._last_counters:
                timing[f"{name}_per_second"] = gained / elapsed
        self._last_time, self._last_counters = now, dict(counters)
        if self._rates:
            # A stage that measures a rate itself knows what to exclude.
            timing = {**clocks, **self._rates}
        self._rates = {}
        return timing

    def close(self) -> None:
        """Close every back end."""
        for backend in self._backends:
            backend.close()
        self._backends, self._before = [], []

    def state_dict(self) -> dict[str, Any]:
        """Return the unwritten metrics, and the axis of the run."""
        scalars = {
            name: np.asarray(_floats(name, values)) for name, values in self._scalars.items()
        }
        texts = {name: list(values) for name, values in self._texts.items()}
        return {
            "scalars": scalars,
            "texts": texts,
            "histograms": dict(self._histograms),
            "images": dict(self._images),
            # Any other is derived from the counters.
            **({"axis": FINEST} if self._axis == FINEST else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore unwritten metrics."""
        states.check_keys(state, "scalars", "texts", "histograms", "images", optional=("axis",))
        axis = state.get("axis")
        if axis is not None and not (isinstance(axis, str) and axis in AXES):
            raise states.StateError("axis", f"must be one of {', '.join(AXES)}, or None")
        kinds: dict[str, tuple[states.Numbers, tuple[None, ...]]]
        kinds = {"scalars": (np.zeros(0), (None,)), "histograms": (torch.zeros(0), (None,)),
                 "images": (torch.zeros(0, dtype=torch.uint8), (None, None, None))}  # fmt: skip
        for key, (own, shape) in kinds.items():
            saved = states.mapping(state, key)
            with states.within(key):
                for name in saved:
                    states.shaped(saved, name, own, shape)
        texts = states.mapping(state, "texts")
        with states.within("texts"):
            self._texts = {name: states.texts(texts, name) for name in texts}
        self._scalars = {name: values.tolist() for name, values in state["scalars"].items()}
        self._histograms, self._images = dict(state["histograms"]), dict(state["images"])
        self._axis = axis


class WriteLog:
    """An observer that writes the log when an interval is due, and at the end."""

    def __init__(self, logger: Log, intervals: Sequence[Every]) -> None:
        self._logger = logger
        self._intervals = tuple(intervals)

    def __call__(self, run: Run) -> None:
        """Write once, however many intervals are due."""
        is_due = False
        for every in self._intervals:
            is_due |= every.is_due(run)
        if (is_due or run.is_finished) and self._logger.has_news:
            self._logger.write(run)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": [every.seen for every in self._intervals]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        states.check_keys(state, "seen")
        saved = states.rows(state, "seen", length=len(self._intervals))
        with states.within("seen"):
            found = [states.whole(saved, index) for index in range(len(saved))]
        for every, seen in zip(self._intervals, found, strict=True):
            every.seen = seen


def _drop(event: str, **details: object) -> None:
    """Drop the events of a logger that is in no run."""


def _floats(name: str, values: Sequence[float | Tensor]) -> list[float]:
    """Return the values as floats; each is independent of the other values."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, value in enumerate(values):
        if isinstance(value, Tensor):
            groups.setdefault((value.dtype, value.device), []).append(index)
    found = list(values)
    try:
        for indices in groups.values():
            # One transfer per dtype and device: each transfer from a GPU costs a synchronisation.
            tensors = [values[index].detach().reshape(()) for index in indices]  # type: ignore[union-attr]
            for index, number in zip(indices, torch.stack(tensors).tolist(), strict=True):
                found[index] = number
        return [float(value) for value in found]
    except (RuntimeError, TypeError, ValueError) as error:
        problem = str(error).splitlines()[0]
        raise LudusError(
            f"the metric '{name}' was given what is not one number: {problem}"
        ) from None


def _mean(numbers: Sequence[float]) -> float:
    try:
        return math.fsum(numbers) / len(numbers)
    except (OverflowError, ValueError):
        # The sum overflows, or contains both infinities.
        return sum(number / len(numbers) for number in numbers)


def _check_name(name: str) -> None:
    if not name or name in counters.known() or name in NOT_SCALARS:
        raise LudusError(f"a metric cannot be named '{name}'; choose one such as 'train/loss'")
