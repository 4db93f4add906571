"""Base of every trainer: a plan, the parts that are checkpointed, and `fit`, which walks the plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

from ludus.core import counters
from ludus.core.cursor import from_json, last_loop
from ludus.core.errors import ConfigError, Interrupted, LudusError
from ludus.core.first_state import FirstState
from ludus.core.hooks import Hooks, bind_hooks, empty_hook
from ludus.core.inspected import Inspected
from ludus.core.loop import walk
from ludus.core.plan import Repeat, check_plan, hook_names
from ludus.core.run import Observer, Run, Stateful, check_intervals
from ludus.core.runtime import MakeRuntime, Request, Result, Resume, Runtime, is_state
from ludus.core.services import Display, EvaluatorBeside, EvaluatorHere, Files, Log, NoLog, Records
from ludus.core.states import check_same_parts, fitting
from ludus.core.unsaved import UnsavedStates, saved_companions


class Trainer(Inspected):
    """A training algorithm: subclasses write `plan` and `parts`, and ludus does the rest.

    Besides the six hooks below, any `before_<name>` or `after_<name>` for a name in the plan is called.
    """

    Config: ClassVar[type[Any]] = object
    derived: ClassVar[tuple[str, ...]] = ("_saved_cursor", "_unsaved", "_first_state")
    """Attributes that change during a run but can be recomputed, so belong to no part."""

    def __init__(self, config: object) -> None:
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
        self._saved_cursor: Any = []
        self._first_state, self._unsaved = FirstState(), UnsavedStates()

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
        raise LudusError(
            f"{type(self).__name__} derives from ludus.core.Trainer, which knows no directory; derive it"
            " from ludus.session.Trainer, or call fit(runtime=ludus.core.InMemoryRuntime)"
        )

    def log_in_memory(self) -> Log:
        """Return the log of an in-memory walk for which no logger was set."""
        return NoLog()

    def seed_generators(self) -> None:
        """Seed the global random generators; called first in every `fit`."""

    def prepare(self, *, max_steps: int | None) -> None:
        """Build what the plan and the parts need; called by `fit` before both, once per process."""
        if max_steps is not None:
            raise ConfigError(f"{type(self).__name__} does not take max_steps")

    def best(self) -> Mapping[str, Any] | None:
        """Return the best model so far by the first score: metric, score, where it is saved."""
        return None

    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the same for each further score, by the score's name."""
        return {}

    def runners_up(self) -> Sequence[Mapping[str, Any]]:
        """Return the same for each model kept besides the best ones, the best first."""
        return ()

    def inexact_because(self) -> Sequence[str]:
        """Return the reasons why a resumed run may end with other bytes; empty means exact."""
        return ()

    def all_reasons(self) -> list[str]:
        """Return inexact_because, and the state that was seen to change without being saved."""
        return [*self.inexact_because(), *self._unsaved.reasons()]

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop the records of best models whose weights are missing.

        `names` are the models that were lost; None means all, for a state from another run.
        """

    def open(self) -> None:
        """Called once per process, before the walk; start worker processes and open files here."""

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
    def display(self) -> Display | None:
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
        if max_steps is not None and num_train_steps not in (None, max_steps):
            both = f"max_steps={max_steps} and num_train_steps={num_train_steps}"
            raise ConfigError(f"fit was given {both}; they mean the same, give one")
        self.run, self._saved_cursor, is_prepared = Run(counters.of(type(self))), [], False
        root = self.root if root is None else root
        request = Request(root, name, resume, show_on, is_transplant=is_state(trainer_state))
        own = runtime(self, request) if runtime else self.make_runtime(request)
        error: BaseException | None = None
        try:
            self.seed_generators()
            self._first_state.put_back()
            self.prepare(max_steps=max_steps if max_steps is not None else num_train_steps)
            is_prepared = True
            self._first_state.remember(self.given_models())
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
                if self.run.cursor:
                    own.show()
                try:
                    walk(plan, self.run, hooks, own.observers(), own.checkpoint)
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
