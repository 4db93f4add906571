"""Engine of a sweep: executes its runs. Each kind is a file of `engines`, registered as a `sweep_engine`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

from ludus.config.base import StrictConfig, TrainerConfig
from ludus.core.trainer import Trainer
from ludus.sweep.curve import Point

MakeTrainer = Callable[[TrainerConfig], Trainer]


@dataclass(frozen=True)
class Task:
    """One run to begin, or to go on with: plain data, which another process can be sent."""

    trial: int
    seed: int
    config: Mapping[str, Any]
    root: str
    """The directory that holds the runs of the sweep."""
    name: str
    """The name of its run there."""
    metric: str | None
    """The logged metric that it tells; None for the one by which the run judges its models first."""
    waits: bool
    """Whether it waits after each logged value to learn if it goes on."""
    group: str | None = None
    """The group of runs with one config that its run belongs to."""
    sweep: str | None = None
    """The search that its run belongs to."""
    until: tuple[str, int] | None = None
    """A counter, and the number from which the next value of the metric pauses the run; None: it ends."""

    @property
    def key(self) -> tuple[int, int]:
        """The trial and the seed."""
        return self.trial, self.seed

    def as_json(self) -> dict[str, Any]:
        """Return it for a message."""
        return asdict(self)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended; what it logged is in its directory."""

    status: Literal["finished", "stopped", "pruned", "paused", "failed", "interrupted"]
    reason: str | None
    counters: Mapping[str, int]
    is_fatal: bool = False
    """Whether the sweep cannot go on, as where its directory cannot be written."""
    is_spent: bool = False
    """Whether the process that ran it is not to run another."""


class RunListener(Protocol):
    """Receives logged values and endings of runs."""

    def logged(self, task: Task, point: Point) -> str | None:
        """Take a logged value; return why the run is to end, or None."""

    def ended(self, task: Task, end: RunEnd) -> None: ...


class SweepEngine(Protocol):
    """Executes tasks; its class is made with its config, and with `make_trainer` if a script gave one."""

    Config: ClassVar[type[StrictConfig]]

    is_here: bool
    """Whether runs are executed in this process, where signals reach them."""

    @property
    def capacity(self) -> int:
        """Number of runs that it executes at once."""

    def open(self, listener: RunListener, directory: str) -> None:
        """Get ready for tasks in the directory of a sweep; the listener is called from `work` alone."""

    def launch(self, task: Task) -> None:
        """Begin a task; at most `capacity` are under way."""

    def work(self, seconds: float) -> None:
        """Wait at most this long until something has happened, and tell the listener of it all."""

    def pause(self) -> None:
        """Ask every run to save and to end as interrupted, soon."""

    def close(self) -> None:
        """Stop everything at once."""
