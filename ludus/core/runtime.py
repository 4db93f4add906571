"""Runtime of a run: what a walk needs and what it returns. The core defines it, `session` provides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ludus.core.errors import ConfigError, LudusError
from ludus.core.exactness import Exact
from ludus.core.first_state import FirstState
from ludus.core.run import Observer, Run, Stateful
from ludus.core.services import Log, NoLog, Weights, recall_nothing

if TYPE_CHECKING:
    from ludus.core.trainer import Trainer

Resume = Literal["exact", "approximate"] | bool


@dataclass(frozen=True)
class Request:
    """Arguments of one call of `fit`, besides the config."""

    root: str = "runs"
    """The directory that holds all runs."""
    name: str | None = None
    """Name of the run's directory below it; None takes the name in the config."""
    resume: Resume = False
    """False: a new run. True or 'exact': continue. 'approximate': continue even if bytes may differ."""
    show_on: Literal["stdout", "stderr"] = "stdout"
    """Stream of the display."""
    is_transplant: bool = False
    """Whether it starts from a state taken from another run."""


def is_state(given: object) -> bool:
    """Return whether a trainer_state was given; raise ConfigError for anything but a saved state."""
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(
            f"trainer_state is {str(given)[:80]!r}; give what trainer.state_dict() has returned, or go on"
            " with a run by its name: fit(name=..., resume=True)"
        )
    return given is not None


class Plotted(Protocol):
    """The curves of a run: a notebook shows them, and `save` writes them to a file."""

    @property
    def svg(self) -> str:
        """The curves as an image."""

    @property
    def html(self) -> str:
        """The curves as a page, which shows the values under the mouse."""

    def save(self, path: str | Path) -> Path:
        """Write them to a file whose name ends with .svg or .html, and return its path."""

    def _repr_html_(self) -> str: ...


Draw = Callable[[str | None, Sequence[str]], Plotted]
"""Draws metrics of the run in this directory; of no name all of them."""


def draw_nothing(run_dir: str | None, metrics: Sequence[str]) -> Plotted:
    """Raise LudusError: this run has no log to draw."""
    raise LudusError(
        "this run was kept in memory, so there is no log of it whose curves can be drawn"
    )


@dataclass(frozen=True)
class Result:
    """Outcome of a run: how it ended, or where it was interrupted."""

    status: Literal["finished", "stopped", "interrupted"]
    reason: str | None
    counters: Mapping[str, int]
    best: Mapping[str, Any] | None = None
    more_bests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The best model by each further score, by the score's name."""
    runners_up: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """The models kept besides the best ones, score by score, the best first."""
    run_dir: str | None = None
    exact: Exact = Exact.EXPECTED
    """`proved`, `expected` or `no`; only `no` is false in a condition."""
    inexact_because: Sequence[str] = field(default_factory=tuple)
    """Why it is `no`."""
    draw: Draw = field(default=draw_nothing, repr=False, compare=False)
    """Draws the curves of the run, for `plot`."""

    def plot(self, metric: str | Sequence[str] | None = None) -> Plotted:
        """Return the curves of the run's metrics, of all or of the given ones; a notebook shows them.

        A name is that of a metric, such as eval/return_mean, or of what several measure, such as loss.
        """
        names = [metric] if isinstance(metric, str) else list(metric or ())
        return self.draw(self.run_dir, names)


class Runtime(Protocol):
    """Environment of a run: its directory, log, display and signals. The loop knows none of it."""

    def open(self, run: Run, parts: Mapping[str, Stateful]) -> Mapping[str, Any] | None:
        """Create or resume the run; return the saved state to continue from, if there is one."""

    def ready(self, run: Run) -> None:
        """Do what must follow the loading of the parts: the random generators last of all."""

    def show(self) -> None:
        """Start the display: after the first hook, or at once for a resumed run."""

    def hide(self) -> None:
        """Stop the display before the last hook."""

    def observers(self) -> Sequence[Observer]: ...
    def checkpoint(self, run: Run, /) -> None: ...
    def close(self, run: Run, error: BaseException | None) -> None: ...
    def result(self, run: Run) -> Result: ...


MakeRuntime = Callable[["Trainer", Request], Runtime]
"""Makes the runtime of one walk of this trainer."""


class TrainerServices:
    """Services that a class of trainers gets from outside the core; here, none. `session` provides them.

    An attribute of the class and not a base class, so that a family can provide it at any level.
    """

    def typed(self, config: object) -> object:
        """Return the typed config of what a script gave."""
        return config

    def first_state(self) -> FirstState:
        """Return what keeps the initial states of the models that a script gave."""
        return FirstState()

    def seed(self, config: object) -> None:
        """Seed the global random generators."""

    def start(self, trainer: Trainer, root: str) -> dict[str, Any] | None:
        """Load what a new run takes over from another, and return the record of it; None: nothing."""
        return None

    def log_in_memory(self) -> Log:
        """Return the log of an in-memory walk for which no logger was set."""
        return NoLog()

    def runtime(self, trainer: Trainer, request: Request) -> Runtime:
        """Return the runtime of a walk if `fit` is given none."""
        raise LudusError(
            f"{type(trainer).__name__} derives from ludus.core.Trainer, which knows no directory; derive it"
            " from ludus.session.Trainer, or call fit(runtime=ludus.core.InMemoryRuntime)"
        )


class InMemoryRuntime:
    """A runtime without files; the run is logged and judged as usual."""

    def __init__(self, trainer: Trainer, request: Request) -> None:
        self._trainer = trainer
        given = trainer.given_logger
        log = trainer.services.log_in_memory() if given is None else given
        trainer.run.log, trainer.run.record = log, log.record
        models = ModelsInMemory(trainer)
        trainer.run.keep_model, trainer.run.recall_model = models.keep, models.recall

    def open(self, run: Run, parts: Mapping[str, Stateful]) -> Mapping[str, Any] | None:
        return None

    def ready(self, run: Run) -> None: ...
    def show(self) -> None: ...
    def hide(self) -> None: ...

    def observers(self) -> Sequence[Observer]:
        return self._trainer.observers()

    def checkpoint(self, run: Run, /) -> None: ...
    def close(self, run: Run, error: BaseException | None) -> None: ...

    def result(self, run: Run) -> Result:
        trainer = self._trainer
        best, more_bests = trainer.best(), trainer.more_bests()
        return ending(run, best=best, more_bests=more_bests, runners_up=trainer.runners_up())


class ModelsInMemory:
    """The best models of a walk without files, kept in memory for the final test."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._kept: dict[str, Weights] = {}

    def keep(self, name: str, weights: Weights, note: Mapping[str, Any], /) -> None:
        """Keep weights that are among the best; drop those that no longer are."""
        trainer = self._trainer
        records = [trainer.best(), *trainer.more_bests().values(), *trainer.runners_up()]
        named = {record["model"] for record in records if record is not None}
        self._kept = {
            one: its for one, its in {**self._kept, name: weights}.items() if one in named
        }

    def recall(self, name: str, /) -> Weights:
        """Return saved weights; raise LudusError for an unknown name."""
        return self._kept[name] if name in self._kept else recall_nothing(name)


def ending(run: Run, **more: Any) -> Result:
    """Return the current outcome of this run."""
    status: Literal["finished", "stopped", "interrupted"] = "interrupted"
    if run.is_finished:
        status = "finished" if run.stop_reason is None else "stopped"
    return Result(status, run.stop_reason or run.waiting_for or None, dict(run.counters), **more)
