"""Base of every trainer: a plan, the parts that are checkpointed, and `fit`, which walks the plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

from ludus.core import counters
from ludus.core.abilities import KeepsBests
from ludus.core.cursor import from_json, last_loop
from ludus.core.errors import ConfigError, Interrupted, LudusError
from ludus.core.hooks import Hooks, bind_hooks, empty_hook
from ludus.core.loop import walk
from ludus.core.plan import Repeat, check_plan, hook_names
from ludus.core.run import Observer, Run, Stateful, check_intervals
from ludus.core.runtime import (
    MakeRuntime,
    Request,
    Result,
    Resume,
    Runtime,
    TrainerServices,
    is_state,
)
from ludus.core.services import (
    CHANGED,
    DisplayProtocol,
    EvaluatorBeside,
    EvaluatorHere,
    Files,
    Log,
    Records,
)
from ludus.core.states import check_same_parts, fitting
from ludus.core.unsaved import UnsavedStates, saved_companions

_NEED_PARTS = ("plan", "parts", "observers")


class Trainer:
    """A training algorithm: subclasses write `plan` and `parts`, and ludus does the rest.

    Best models, reasons why a resume is not exact, and notes on engines are collected from the parts: a
    judge (`ludus.judge.Judge`), a part with `inexact_because()`, a part with `engine_notes`.
    Besides the six hooks below, any `before_<name>` or `after_<name>` for a name in the plan is called.
    """

    Config: ClassVar[type[Any]] = object
    services: ClassVar[TrainerServices] = TrainerServices()
    """Configs, seeding, logs and directories, which the core does not know."""
    asked_once: ClassVar[tuple[str, ...]] = ()
    """Roles whose answers are kept in a journal: their own state cannot be saved with the parts."""
    _is_prepared = False
    derived: ClassVar[tuple[str, ...]] = ("_saved_cursor", "_unsaved", "_first_state")
    """Attributes that change during a run but can be recomputed, so belong to no part."""

    def __init_subclass__(cls, **options: object) -> None:
        """Wrap the methods that need `prepare`, so that calling them too early raises a clear LudusError."""
        super().__init_subclass__(**options)
        own = vars(cls)
        for name in _NEED_PARTS:
            if name in own:
                setattr(cls, name, _once_built(own[name]))
        if "prepare" in own:
            setattr(cls, "prepare", _noted(own["prepare"]))  # noqa: B010 - seen by type checkers

    def __init__(self, config: object) -> None:
        config = self.services.typed(config)
        if self.Config is not object and not isinstance(config, self.Config):
            raise ConfigError(
                f"{type(self).__name__} takes a {self.Config.__qualname__}, not a {type(config).__name__};"
                " ludus.build_trainer(config) makes the trainer that a config is for"
            )
        self.config: Any = config
        self.run = Run(counters.of(type(self)))
        self.root = "runs"  # holds all runs, unless `fit` is given another
        self.model: object = None
        self.given_logger: Log | None = None  # what `set_logger` was given
        self.evaluator: EvaluatorHere | EvaluatorBeside | None = None
        self.storage: Files | None = None
        self.callbacks: dict[str, object] = {}
        self.recorder: Records | None = None
        # Class names of all that a script gave, by role: they affect the run but are in no config.
        self.given_classes: dict[str, str] = {}
        self.started_from: Mapping[str, Any] | None = None  # what a new run took from another
        self._saved_cursor: Any = []
        self.notes: list[str] = []  # what `fit` changed in the config, a sentence each
        self._first_state, self._unsaved = self.services.first_state(), UnsavedStates()

    def plan(self) -> Repeat:
        """Return the plan of the run, a tree of loops and stages."""
        raise NotImplementedError(f"{type(self).__name__} must write plan()")

    def parts(self) -> Mapping[str, Stateful]:
        """Return the objects whose state is checkpointed, by name."""
        raise NotImplementedError(f"{type(self).__name__} must write parts()")

    def observers(self) -> Sequence[Observer]:
        """Return the observers called at every boundary, in order."""
        return ()

    def make_runtime(self, request: Request) -> Runtime:
        """Return the runtime of a walk if `fit` is given none."""
        return self.services.runtime(self, request)

    def abilities(self) -> Sequence[object]:
        """Return the objects that can evaluate, play or export saved weights (core/abilities.py)."""
        return (self,)

    def consulted(self) -> Mapping[str, object]:
        """Return the objects the run consults that are in no part, by role: a game, analysers, an oracle.

        The user's own objects with `state_dict` and `load_state_dict` become parts; others are watched.
        """
        return {}

    def data_facts(self) -> Mapping[str, str]:
        """Return a digest of the data by role; a resume with other data is refused."""
        return {}

    def given_models(self) -> Sequence[object]:
        """Return the models a script gave to be trained: each new run starts from their initial states."""
        return [self.model] if "model" in self.given_classes else []

    def prepare(self, *, max_steps: int | None) -> None:
        """Build what the plan and the parts need; called by `fit` before both, once per process."""
        if max_steps is not None:
            raise ConfigError(f"{type(self).__name__} does not take max_steps")
        self._is_prepared = type(self).prepare is Trainer.prepare

    def _judges(self) -> list[KeepsBests]:
        return [part for part in self._prepared_parts() if isinstance(part, KeepsBests)]

    def _prepared_parts(self) -> Sequence[Stateful]:
        return list(self.parts().values()) if self._is_prepared else ()

    def best(self) -> Mapping[str, Any] | None:
        """Return the best model so far by the first score: metric, score, where it is saved."""
        return next((judge.best for judge in self._judges()), None)

    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the same for each further score, by the score's name."""
        found: dict[str, Mapping[str, Any]] = {}
        for index, judge in enumerate(self._judges()):
            if index and judge.first is not None and judge.best is not None:
                found[judge.first] = judge.best
            found |= judge.more_bests
        return found

    def runners_up(self) -> Sequence[Mapping[str, Any]]:
        """Return the same for each model kept besides the best ones, the best first."""
        return [one for judge in self._judges() for one in judge.runners_up]

    def inexact_because(self) -> Sequence[str]:
        """Return the reasons why a resumed run may end with other bytes; empty means exact."""
        asked = [getattr(part, "inexact_because", None) for part in self._prepared_parts()]
        return [reason for ask in asked if callable(ask) for reason in ask()]

    def all_reasons(self) -> list[str]:
        """Return inexact_because, and the state that was seen to change without being saved."""
        return [*self.inexact_because(), *self._unsaved.reasons()]

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop the records of best models whose weights are missing.

        `names` are the models that were lost; None means all, for a state from another run.
        """
        for judge in self._judges():
            judge.forget_models(names)

    def open(self) -> None:
        """Called once per process, before the walk; start worker processes and open files here."""

    def _report_notes(self) -> None:
        """Report what `fit` changed, and how the updates are executed."""
        for note in self.notes:
            self.run.tell(note, event=CHANGED)
        for part in self._prepared_parts():
            for note in getattr(part, "engine_notes", ()):
                self.run.tell(note, event="engine")

    def _report_ignored(self, max_steps: int | None, given: object) -> None:
        """Report a length given to `fit` that the run passed, if `prepare` left that config as it was."""
        if max_steps is None or self.config is not given or self.notes:
            return
        if (count := self.run.counters["opt_steps"]) > max_steps:
            self.run.tell(
                f"fit was given max_steps={max_steps}, and the run made {count} optimisation steps:"
                f" {type(self).__name__}.prepare ignores max_steps; pass it to ludus.session.begin",
                event="max_steps_ignored",
            )

    def close(self) -> None:
        """Called once per process after `prepare` returned, when the walk ends or if there was none."""

    def set_model(self, model: object) -> None:
        """Train this model instead of the one in the config."""
        self.model = model
        self._first_state.forget()
        self.note_given(model=model)

    def set_logger(self, logger: Log) -> None:
        """Log to this logger instead of the one in the config."""
        self.given_logger = logger

    def set_evaluator(self, evaluator: EvaluatorHere | EvaluatorBeside) -> None:
        """Evaluate with this evaluator: an object with evaluate(agent), or an AsyncEvaluator."""
        if not any(callable(getattr(evaluator, name, None)) for name in ("evaluate", "launch")):
            raise ConfigError(
                f"{type(evaluator).__name__} cannot evaluate; an evaluator has a method evaluate(agent)"
                " that returns a score: ludus.Evaluator(score=f) makes one of a function"
            )
        self.evaluator = evaluator
        self.note_given(evaluator=evaluator)

    def set_storage(self, storage: Files) -> None:
        """Save the run to this storage."""
        self.storage = storage

    @property
    def logger(self) -> Log:
        """The logger set by a script, else the log of the run."""
        return self.run.log if self.given_logger is None else self.given_logger

    @property
    def display(self) -> DisplayProtocol | None:
        """The display of the run during the walk; None before."""
        return self.run.display

    terminal_display = display
    """Alias of `display` for scripts; a context manager."""

    def add(self, callback: object, *, name: str | None = None) -> None:
        """Add a callback: any object with hook methods; if it has state, the state becomes a part."""
        name = name or type(callback).__name__.lower()
        if name in self.callbacks:
            raise LudusError(f"a callback named '{name}' was added already; pass another name=")
        self.callbacks[name] = callback

    def note_given(self, **objects: object) -> None:
        """Record the classes of objects a script gave, by role; a resume without them is refused."""
        self.given_classes |= {r: type(o).__name__ for r, o in objects.items() if o is not None}

    @property
    def is_customised(self) -> bool:
        """Whether a script gave objects that are not in the config: then only the script can resume it."""
        return bool(self.given_classes or self.callbacks)

    def all_parts(self) -> dict[str, Stateful]:
        """Return all parts: the run itself first, then those of `parts`, then those of the companions."""
        parts: dict[str, Stateful] = {"run": self.run, **self.parts()}
        for name, part in parts.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise LudusError(
                    f"the part '{name}' is a {type(part).__name__} without state_dict and"
                    " load_state_dict; put it in a class that has them"
                )
        return parts | saved_companions(self, parts.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every part."""
        return {name: dict(part.state_dict()) for name, part in self.all_parts().items()}

    def migrated(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert a state saved by an earlier version to the current form; return any other unchanged."""
        return state

    def changed_state(self, state: Mapping[str, Any], keys: Collection[str]) -> Mapping[str, Any]:
        """Adapt a saved state to a resume that changes these keys of the config; unchanged by default."""
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the saved state of every part; the next fit walks the plan from the saved cursor."""
        parts, state = self.all_parts(), self.migrated(state)
        for name, part in check_same_parts(parts, state).items():
            with fitting(name):
                part.load_state_dict(state[name])
        self._saved_cursor = state["run"]["cursor"]

    def fit(
        self,
        max_steps: int | None = None,
        trainer_state: Mapping[str, Any] | None = None,
        *,
        num_train_steps: int | None = None,
        resume: Resume = False,
        root: str | None = None,
        name: str | None = None,
        show_on: Literal["stdout", "stderr"] = "stdout",
        runtime: MakeRuntime | None = None,
    ) -> Result:
        """Walk the plan to its end, or until it is interrupted, and return the outcome.

        `max_steps`, also called `num_train_steps`, counts optimisation steps for every trainer.
        Settings it changes (an interval that is never reached becomes 0) are displayed and in events.jsonl.
        """
        given, length = self.config, _length(max_steps, num_train_steps)
        self.run, self._saved_cursor, is_prepared = Run(counters.of(type(self))), [], False
        root = self.root if root is None else root
        request = Request(root, name, resume, show_on, is_transplant=is_state(trainer_state))
        own = runtime(self, request) if runtime else self.make_runtime(request)
        error: BaseException | None = None
        try:
            self.services.seed(self.config)
            self.notes = []
            self._first_state.put_back()
            self.prepare(max_steps=length)
            is_prepared = self._is_prepared = True
            self._begin_weights(root)
            plan = self.plan()
            check_plan(plan, self.run.counters)
            hooks = self._bind_hooks(plan, own, trainer_state)
            saved = own.open(self.run, self.all_parts()) or trainer_state
            self._take_up(saved, is_from_elsewhere=saved is trainer_state)
            own.ready(self.run)
            self._first_state.tell(self.run.tell, is_new=saved is None)
            if not self.run.is_finished or self._take_up_again(plan):
                self.run.cursor = from_json(self._saved_cursor, plan)
                self.open()
                self._report_notes()
                if self.run.cursor:
                    own.show()
                try:
                    walk(plan, self.run, hooks, own.observers(), own.checkpoint)
                    self._report_ignored(length, given)
                except Interrupted:
                    self._save_interrupted(hooks, own)
        except BaseException as caught:
            error = caught
            raise
        finally:
            try:
                if is_prepared:
                    self.close()
                    self._first_state.leave()
            finally:
                own.close(self.run, error)
        return own.result(self.run)

    def _begin_weights(self, root: str) -> None:
        """Note the initial weights of a script's models, and take those of another run, if there is one."""
        self._first_state.remember(self.given_models())
        self.started_from = self.services.start(self, root)

    def _bind_hooks(self, plan: Repeat, runtime: Runtime, state: object) -> Hooks:
        """Return all hooks, with the display started after the root's first and stopped before its last."""
        first, last = hook_names(plan)
        offers = {first: {"trainer_state": lambda run: state}}
        owners = [self, *self.callbacks.values()]
        check_intervals([*owners, *self.all_parts().values()], self.run.counters)
        hooks = bind_hooks(plan, self.run, owners, base=Trainer, offers=offers)
        hooks[first] = (*hooks.get(first, ()), runtime.show)
        hooks[last] = (runtime.hide, *hooks.get(last, ()))
        return hooks

    def _save_interrupted(self, hooks: Hooks, runtime: Runtime) -> None:
        """Save a checkpoint after a stage raised Interrupted."""
        # The stage changed nothing, so the state is still that of the boundary before it, unless a
        # hook ran in between, which a resume calls again.
        if not hooks.get(f"before_{self.run.cursor[-1].name}"):
            self.run.is_pausing = True
            runtime.checkpoint(self.run)

    def _take_up(self, saved: Mapping[str, Any] | None, *, is_from_elsewhere: bool) -> None:
        """Load the saved state, if any, and start watching for state that changes without being saved."""
        if saved is not None:
            self.load_state_dict(saved)
            if is_from_elsewhere:
                self.forget_models(None)
        self._unsaved.watch(self)

    def _take_up_again(self, plan: Repeat) -> bool:
        """Return whether a finished run was made longer; the loop that ran out is then entered again."""
        if self.run.stop_reason is not None or not self.run.exhausted:
            return False
        self.run.cursor = from_json(self.run.exhausted, plan)  # `until` may read its round
        frame, loop = self.run.cursor[-1], last_loop(plan, self.run.exhausted)
        is_full = isinstance(loop.times, int) and frame.index >= loop.times
        is_over = is_full or (loop.until is not None and self.run.decide(loop.until(self.run)))
        self.run.cursor = []
        if is_over:
            return False
        self._saved_cursor, self.run.is_finished = self.run.exhausted, False
        return True

    @empty_hook
    def before_train(self) -> None: ...
    @empty_hook
    def before_epoch(self) -> None: ...
    @empty_hook
    def before_step(self) -> None: ...
    @empty_hook
    def after_step(self) -> None: ...
    @empty_hook
    def after_epoch(self) -> None: ...
    @empty_hook
    def after_train(self) -> None: ...


def _noted(prepare: Callable[..., None]) -> Callable[..., None]:
    """Wrap `prepare` to record that the whole of it was called, not only that of a base class."""

    @functools.wraps(prepare)
    def noted(self: Trainer, **options: object) -> None:
        prepare(self, **options)
        self._is_prepared |= getattr(type(self).prepare, "__wrapped__", None) is prepare

    return noted


def _once_built(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a method that needs what `prepare` builds, so that calling it too early is a LudusError."""

    @functools.wraps(method)
    def asked(self: Trainer) -> Any:
        try:
            return method(self)
        except AttributeError as error:
            if self._is_prepared:
                raise
            kind = type(self).__name__
            raise LudusError(
                f"{kind}.{method.__name__}() needs what fit() builds when it begins; ask in a hook or after"
                f" fit(), or call prepare(max_steps=None) first (`ludus plan CONFIG` prints a plan)"
            ) from error

    return asked


def _length(max_steps: int | None, num_train_steps: int | None) -> int | None:
    """Return the length given to `fit` under either name."""
    if max_steps is not None and num_train_steps not in (None, max_steps):
        both = f"max_steps={max_steps} and num_train_steps={num_train_steps}"
        raise ConfigError(f"fit was given {both}; they mean the same, give one")
    return num_train_steps if max_steps is None else max_steps
