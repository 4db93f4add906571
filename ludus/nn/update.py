"""One update as every family makes it: a learner, a function that an engine executes, metrics and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.nn.engines.choice import EngineKey, EngineName, Subject, Tell, choose_engine
from ludus.nn.engines.unsaved import PlainState, unsaved
from ludus.nn.learner import Learner


class Metered:
    """The sums of an update's metrics since the last record, and its changing numbers, on the device.

    Nothing is read from the device until a record is written.
    """

    prefix = "train"
    """The first word of the names of its metrics in the log."""

    def __init__(self, metric_names: Sequence[str], device: torch.device) -> None:
        self.metric_names = tuple(metric_names)
        self.device = device
        self.totals = torch.zeros(len(self.metric_names), dtype=exact_type(device), device=device)
        """The sum of each metric since the last record."""
        self.num_counted = 0
        """How many updates, or examples, the sums are of."""
        self._numbers: Tensor | None = None
        self._scalars: tuple[Tensor, ...] = ()
        self._last_numbers: tuple[float, ...] = ()
        self._last_scalars: tuple[float, ...] = ()

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


class Update(Metered):
    """The gradient update of one learner; a part.

    Define `update`, the whole update as a function of tensors, and a `step` that counts, and calls `execute`
    with `numbers` or `scalars`: the same function, executed by an engine.
    """

    def __init__(self, learner: Learner, metric_names: Sequence[str]) -> None:
        super().__init__(metric_names, learner.flat.device)
        self.learner = learner
        self.flat, self.optimizer = learner.flat, learner.optimizer
        self.execute: Callable[..., Any] = self.update
        self.engine_notes: list[str] = []
        """How the update is executed, where a user should know: a trainer reports them when it opens."""
        self.plain_state: PlainState | None = None
        """The plain attributes of a script's network before the first update."""

    def update(self, *inputs: Any) -> Any:
        """Take a gradient step, count its metrics and return the loss."""
        raise NotImplementedError

    def choose(
        self,
        engine: EngineKey,
        example: Callable[[], Any] = lambda: None,
        *,
        is_long: bool = False,
        has_begun: bool = False,
        tell: Tell | None = None,
    ) -> EngineName:
        """Choose what executes the update, and return the engine's name for the resolved config.

        `example` returns inputs of the update; `tell` reports what an engine finds out later.
        """
        network = self.learner.module
        self.plain_state = PlainState(network)
        subject = Subject(self.update, self, [network], self.device, example)
        chosen = choose_engine(engine, subject, is_long=is_long, has_begun=has_begun, tell=tell)
        self.execute, self.engine_notes = chosen.by(self.update), list(chosen.notes)
        return chosen.engine

    def inexact_because(self) -> list[str]:
        """Return the state that a script's network changes without saving it."""
        return [] if self.plain_state is None else unsaved(self.plain_state)

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
