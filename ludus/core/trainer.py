"""The base of every trainer: a plan, the parts that must survive, and `fit`, which walks the plan."""

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
    """Write `plan` and `parts`, and ludus does the rest.

    Beside the six hooks below any `before_<name>` or `after_<name>` of a name in the plan is called.
    """

    Config: ClassVar[type[Any]] = object
    derived: ClassVar[tuple[str, ...]] = ("_saved_cursor", "_unsaved", "_first_state")
    """Attributes that change during a run but can be computed anew, so belong to no part."""

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
        # What decides the run and is in no config: the class of all that a script gave, by role.
        self.given_classes: dict[str, str] = {}
        self._saved_cursor: Any = []
        self._first_state, self._unsaved = FirstState(), UnsavedStates()

    def plan(self) -> Repeat:
        """Return what happens, as a tree."""
        raise NotImplementedError(f"{type(self).__name__} must write plan()")

    def parts(self) -> Mapping[str, Stateful]:
        """Return what must survive, by name."""
        raise NotImplementedError(f"{type(self).__name__} must write parts()")

    def observers(self) -> Sequence[Observer]:
        """Return what watches this trainer at every boundary, in order."""
        return ()

    def make_runtime(self, request: Request) -> Runtime:
        """Return what stands around a walk where `fit` is not given it as `around`."""
        raise LudusError(
            f"{type(self).__name__} derives from ludus.core.Trainer, which knows no directory; derive it"
            " from ludus.session.Trainer, or call fit(runtime=ludus.core.InMemoryRuntime)"
        )

    def log_in_memory(self) -> Log:
        """Return what a walk that keeps nothing is logged to, where no logger was set."""
        return NoLog()

    def seed_generators(self) -> None:
        """Set the global generators: every `fit` begins with it."""

    def prepare(self, *, max_steps: int | None) -> None:
        """Build what the plan and the parts need; called first by `fit`, once per process."""
        if max_steps is not None:
            raise ConfigError(f"{type(self).__name__} does not take max_steps")

    def best(self) -> Mapping[str, Any] | None:
        """Return the best model so far by the first score: metric, score, where it is kept."""
        return None

    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the same for each further score, by the score's name."""
        return {}

    def runners_up(self) -> Sequence[Mapping[str, Any]]:
        """Return the same for each model that is kept after the best ones, the best first."""
        return ()

    def inexact_because(self) -> Sequence[str]:
        """Return the reasons why a resumed run may end with other bytes; none means exact."""
        return ()

    def all_reasons(self) -> list[str]:
        """Return inexact_because, and what was seen to change without being saved."""
        return [*self.inexact_because(), *self._unsaved.reasons()]

    def forget_models(self, names: Collection[str] | None) -> None:
        """Drop what a state says of best models that are not there: lost, or None: all, of another run."""

    def open(self) -> None:
        """Called once per process, before the walk; the place for worker processes and files."""

    def close(self) -> None:
        """Called once per process that was prepared, after the walk, however it ended or if none was."""

    def set_model(self, model: object) -> None:
        """Train this model rather than the one the config describes."""
        self.model = model
        self._first_state.forget()
        self.note_given(model=model)

    def set_logger(self, logger: Log) -> None:
        """Log through this logger rather than the one the settings describe."""
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
        """Keep the run in this storage."""
        self.storage = storage

    @property
    def logger(self) -> Log:
        """The log that a script has set, or else that of the run."""
        return self.run.log if self.given_logger is None else self.given_logger

    @property
    def display(self) -> Display | None:
        """What shows the run while it walks; None before."""
        return self.run.display

    terminal_display = display
    """The same, by the name that scripts know: a context manager."""

    def add(self, callback: object, *, name: str | None = None) -> None:
        """Take any object with hook methods; if it has state, the state becomes a part."""
        name = name or type(callback).__name__.lower()
        if name in self.callbacks:
            raise LudusError(f"a callback named '{name}' was added already; pass another name=")
        self.callbacks[name] = callback

    def note_given(self, **objects: object) -> None:
        """Remember that a script gave these, by role, so that a resume without them is refused."""
        self.given_classes |= {r: type(o).__name__ for r, o in objects.items() if o is not None}

    @property
    def is_customised(self) -> bool:
        """Whether a script gave what the config does not say: only the script can resume it."""
        return bool(self.given_classes or self.callbacks)

    def all_parts(self) -> dict[str, Stateful]:
        """Return the parts, those of the companions included, and the run itself first."""
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
        """Return a state that an earlier version saved as this one would; any other as it is."""
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give every part its saved state; the plan is walked from the saved cursor at the next fit."""
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
        """Walk the plan to its end, or to where it is interrupted, and say how it ended.

        `max_steps`, also called `num_train_steps`, counts optimisation steps, whatever the trainer.
        What changes with it (an interval that is never reached is 0) is shown and in events.jsonl.
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
        """Return all hooks, with the display opened after the root's first and closed before its last."""
        first, last = hook_names(plan)
        offers = {first: {"trainer_state": lambda run: state}}
        owners = [self, *self.callbacks.values()]
        check_intervals([*owners, *self.all_parts().values()], self.run.counters)
        hooks = bind_hooks(plan, self.run, owners, base=Trainer, offers=offers)
        hooks[first] = (*hooks.get(first, ()), runtime.show)
        hooks[last] = (runtime.hide, *hooks.get(last, ()))
        return hooks

    def _save_interrupted(self, hooks: Hooks, runtime: Runtime) -> None:
        """Save what a stage that gave up has left."""
        # It has changed nothing, so the state is still that of the boundary before it; unless a hook
        # came between, which a resume calls again.
        if not hooks.get(f"before_{self.run.cursor[-1].name}"):
            self.run.is_pausing = True
            runtime.checkpoint(self.run)

    def _take_up(self, saved: Mapping[str, Any] | None, *, is_from_elsewhere: bool) -> None:
        """Load a state, if there is one, and notice from now on what changes without being saved."""
        if saved is not None:
            self.load_state_dict(saved)
            if is_from_elsewhere:
                self.forget_models(None)
        self._unsaved.watch(self)

    def _take_up_again(self, plan: Repeat) -> bool:
        """Return whether a finished run was made longer; the loop that ran out is then asked again."""
        if self.run.stop_reason is not None or not self.run.exhausted:
            return False
        self.run.cursor = from_json(self.run.exhausted, plan)  # `until` may ask for its round
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
