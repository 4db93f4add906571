"""One update as every family makes it: learners, a function that an engine executes, metrics and state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ludus.core import states
from ludus.nn.engines.choice import (
    Chosen,
    EngineKey,
    EngineName,
    Subject,
    Tell,
    choose_engine,
)
from ludus.nn.engines.unsaved import PlainState, unsaved
from ludus.nn.learner import Learner


class Update:
    """The gradient update of one learner, or of several that `learners` names; a part.

    Define `update`, the whole update as a function of tensors, and a `step` that counts, and calls `execute`
    with `numbers` or `scalars`: the same function, executed by an engine. Metrics are sums on the device:
    nothing is read from it until a record is written.
    """

    prefix = "train"
    """The first word of the names of its metrics in the log."""
    worth_compiling: ClassVar[float] = math.inf
    """The number of updates from which compiling pays off, for `engine: auto`."""
    why_eager: str | None = None
    """Why no engine may replay the update, if none may."""

    def __init__(
        self,
        learner: Learner | None,
        metric_names: Sequence[str],
        device: torch.device | None = None,
    ) -> None:
        """An update of several learners gives none here, but the device of all."""
        if learner is not None:
            self.learner, device = learner, learner.flat.device
            self.flat, self.optimizer = learner.flat, learner.optimizer
        assert device is not None
        self.metric_names, self.device = tuple(metric_names), device
        self.execute: Callable[..., Any] = self.update
        self.engine_notes: list[str] = []
        """How the update is executed, where a user should know: a trainer reports them when it opens."""
        self.plain_state: PlainState | None = None
        """The plain attributes of a script's networks before the first update."""
        self.totals = torch.zeros(len(self.metric_names), dtype=exact_type(device), device=device)
        """The sum of each metric since the last record."""
        self.num_counted = 0
        """How many updates, or examples, the sums are of."""
        self._numbers: Tensor | None = None
        self._scalars: tuple[Tensor, ...] = ()
        self._last_numbers: tuple[float, ...] = ()
        self._last_scalars: tuple[float, ...] = ()

    def learners(self) -> Mapping[str, Learner]:
        """Return what learns, by name."""
        return {"learner": self.learner}

    def modules(self) -> list[nn.Module]:
        """Return the trained networks."""
        return [learner.module for learner in self.learners().values()]

    def update(self, *inputs: Any) -> Any:
        """Take a gradient step, count its metrics and return the loss, or the error of each example."""
        raise NotImplementedError

    def example_inputs(self) -> Sequence[object] | None:
        """Return inputs of `update` of the right shapes, such as zeros; None if there are none yet."""
        return None

    def subject(self) -> Subject:
        """Return the update, and what decides which engines can execute it."""
        return Subject(
            self.update, self, self.modules(), self.device, self.example_inputs,
            why_eager=self.why_eager,
        )  # fmt: skip

    def is_worth_compiling(self, length: int) -> bool:
        """Return whether a run of this length is long enough for compiling to pay off."""
        return length >= self.worth_compiling

    def choose(
        self,
        engine: EngineKey,
        length: int = 0,
        *,
        has_begun: bool = False,
        tell: Tell | None = None,
    ) -> EngineName:
        """Choose what executes the update, and return the engine's name for the resolved config.

        `length` is that of the run, in what `worth_compiling` counts. `tell` reports what an engine finds out
        later. Raise ConfigError if the engine named in the config cannot execute it.
        """
        is_long = self.is_worth_compiling(length)
        chosen = choose_engine(
            engine, self.subject(), is_long=is_long, has_begun=has_begun, tell=tell
        )
        self.execute_by(chosen)
        self.engine_notes = list(chosen.notes)
        if self.plain_state is None:
            self.note_plain_state()
        return chosen.engine

    def execute_by(self, chosen: Chosen) -> None:
        """Execute the update by this engine from now on."""
        self.execute = chosen.by(self.update)

    def note_plain_state(self) -> None:
        """Note the plain attributes of a script's networks as they are now."""
        self.plain_state = PlainState(*self.modules())

    def inexact_because(self) -> list[str]:
        """Return the state that a script's network changes without saving it."""
        return [] if self.plain_state is None else unsaved(self.plain_state)

    def numbers(self, *given: float) -> Tensor:
        """Return numbers such as the learning rate as one tensor; it is sent only when one has changed.

        As plain numbers they would be built into what is taped, captured or compiled.
        """
        if self._numbers is None or given != self._last_numbers:
            # Created on the host and sent: created on the device, the host would wait for it.
            self._numbers = torch.tensor(given).to(self.device, non_blocking=True)
            self._last_numbers = given
        return self._numbers

    def scalars(self, *given: float) -> tuple[Tensor, ...]:
        """Return the same numbers as 0-d tensors, always the same ones, filled when one has changed."""
        if given != self._last_scalars:
            if len(self._scalars) != len(given):
                self._scalars = tuple(torch.zeros((), device=self.device) for _ in given)
            for scalar, number in zip(self._scalars, given, strict=True):
                scalar.fill_(number)
            self._last_scalars = given
        return self._scalars

    def count(self, *metrics: Tensor) -> None:
        """Add the metrics of an update to the sums, in the order of `metric_names`."""
        self.totals.add_(torch.stack([metric.detach() for metric in metrics]))

    def metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last record."""
        if not self.num_counted:
            return {}
        means = [total / self.num_counted for total in self.totals.tolist()]
        named = zip(self.metric_names, means, strict=True)
        return {f"{self.prefix}/{name}": mean for name, mean in named}

    def take_metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last call, and reset the sums."""
        metrics = self.metrics()
        self.totals.zero_()
        self.num_counted = 0
        return metrics

    def metric_state(self) -> dict[str, Any]:
        """Return the metrics that are not recorded yet."""
        return {"totals": self.totals, "num_counted": self.num_counted}

    def check_metric_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless these are sums of such metrics."""
        states.like(state, "totals", self.totals)
        states.whole(state, "num_counted")

    def load_metric_state(self, state: Mapping[str, Any]) -> None:
        """Copy saved sums in."""
        self.totals.copy_(states.like(state, "totals", self.totals))
        self.num_counted = states.whole(state, "num_counted")

    def state_dict(self) -> dict[str, Any]:
        """Return the network, its optimizer, and the metrics that are not recorded yet."""
        return {"learner": self.learner.state_dict(), **self.metric_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        states.check_keys(state, "learner", "totals", "num_counted")
        self.check_metric_state(state)
        with states.within("learner"):
            self.learner.load_state_dict(state["learner"])
        self.load_metric_state(state)


def exact_type(device: torch.device) -> torch.dtype:
    """Return the most precise dtype for sums on this device."""
    return torch.float32 if device.type == "mps" else torch.float64
