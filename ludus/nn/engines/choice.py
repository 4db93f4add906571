"""Choose the engine that executes an update; every family decides here.

auto       graph on CUDA; on the CPU compiled if the run is long enough, else tape; else eager
eager      call it
tape       replay its operations, bit-identical (CPU)
graph      replay it as a CUDA graph
compiled   compile it as one function with torch's compiler
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import nn

from ludus.core.errors import ConfigError, LudusError
from ludus.nn.engines.compiled import compile_method, why_no_compiler, why_not_traced
from ludus.nn.engines.gate import has_attention, is_plain, one_attention, why_not_repeatable
from ludus.nn.engines.graph import Graphed
from ludus.nn.engines.module_guard import Executed, Guarded, ModuleGuard
from ludus.nn.engines.tape import Taped
from ludus.nn.engines.unsaved import PlainState, is_foreign

EngineName = Literal["eager", "tape", "graph", "compiled"]
EngineKey = Literal["auto", "eager", "tape", "graph", "compiled"]
"""The values in a config: an engine, or auto, which chooses one."""
Executor = Callable[[Executed], Executed]
"""Returns a function that runs an update on an engine."""
Tell = Callable[[str], None]


class Engine(Protocol):
    """Executes an update; never decides what it computes."""

    def __call__(
        self, method: Executed, device: torch.device, /, *, tell: Tell | None = None
    ) -> Executed:
        """Return a function that does what the method does; raise ConfigError if the engine cannot run here.

        If the first calls show that the engine cannot be used, `tell` is called with the reason, and the
        method is called eagerly.
        """
        ...


def eager(method: Executed, device: torch.device, *, tell: Tell | None = None) -> Executed:
    """Return the method itself."""
    return method


def _tape(method: Executed, device: torch.device, *, tell: Tell | None = None) -> Executed:
    return Taped(method, tell=tell)


ENGINES: Mapping[EngineName, Engine] = {
    "eager": eager,
    "tape": _tape,
    "graph": Graphed,
    "compiled": compile_method,
}
_UNUSED = {"tape": "taped", "graph": "captured as a CUDA graph", "compiled": "compiled"}


class Subject(NamedTuple):
    """An update to execute, and what decides which engines can execute it."""

    method: Executed
    """A bound method; other methods of the same owner may be executed in the same way."""
    owner: object
    """The agent or the model whose class defines the computation. An update changes only its tensors."""
    modules: Sequence[nn.Module]
    """The networks that are trained."""
    device: torch.device
    example: Callable[[], Sequence[object] | None]
    """Returns example arguments of the method, or None if there are none yet."""

    others: Sequence[object] = ()
    """Other objects that affect the update and that a script may change: a model around a network."""
    generators: Sequence[torch.Generator] = ()
    """The generators that methods of the owner draw from, besides torch's default generator."""
    why_eager: str | None = None
    """Why no engine may replay the update, if none may."""

    def why_not(self, engine: EngineName) -> str | None:
        """Return why this engine cannot execute the update here, or None if it can."""
        if engine == "eager":
            return None
        if self.why_eager is not None:
            return self.why_eager
        needs = {"tape": "cpu", "graph": "cuda"}.get(engine, self.device.type)
        if self.device.type != needs:
            return f"the engine '{engine}' is for {needs}, and the device is {self.device.type}"
        if (reason := why_not_repeatable(self.owner, self.modules)) is not None:
            return reason
        if engine == "compiled":
            reason = why_no_compiler(self.device)
            return reason if reason or is_plain(self.modules) else self._why_not_traced()
        if engine == "graph" and self.is_vouched:
            # A branch on a number would stop the capture only after training has begun.
            return self._why_not_traced()
        return None

    def _why_not_traced(self) -> str | None:
        arguments = self.example()
        return None if arguments is None else why_not_traced(self.method, arguments)

    @property
    def is_vouched(self) -> bool:
        """Whether a third-party module or owner declares itself deterministic."""
        parts = [part for module in self.modules for part in module.modules()]
        return any(is_foreign(type(part)) for part in [self.owner, *parts])


class Chosen(NamedTuple):
    """The outcome of a choice of engine."""

    engine: EngineName
    """The engine in the resolved config."""
    by: Executor
    """Executes methods of the subject's owner."""
    used: EngineName
    """The engine that executes them: eager if the one in the config cannot be used here."""
    notes: list[str]
    """Messages for the user: why the update does not run on a faster engine."""

    @property
    def is_eager(self) -> bool:
        """Whether methods are called eagerly."""
        return self.used == "eager"


def choose_engine(
    wanted: EngineKey,
    subject: Subject,
    *,
    is_long: bool,
    has_begun: bool = False,
    tell: Tell | None = None,
) -> Chosen:
    """Return the engine for an update, its executor, and the messages to log.

    `is_long` says that the run is long enough for compiling to pay off. Raise ConfigError if `graph` or
    `compiled` is requested and impossible; a run that has begun on another device goes on without it. `tell`
    is called with what only the first updates show.
    """
    notes: list[str] = []
    named: EngineName
    if wanted == "auto":
        named = used = _best(subject, is_long=is_long, notes=notes)
    else:
        named = used = wanted
        reason = subject.why_not(wanted)
        is_moved = has_begun and wanted == "graph" and subject.device.type != "cuda"
        if reason is not None and wanted != "tape" and not is_moved:
            raise ConfigError(f"'engine' is {wanted}, but {reason}; set engine to auto")
        if reason is not None:
            used = _best(subject, is_long=False, notes=[]) if is_moved else "eager"
            notes.append(_sentence([wanted], reason))
    may_fall_back = wanted not in ("graph", "compiled")
    return Chosen(named, _executor(used, subject, tell, may_fall_back=may_fall_back), used, notes)


def _executor(
    used: EngineName, subject: Subject, tell: Tell | None, *, may_fall_back: bool
) -> Executor:
    """Return an executor of the owner's methods on this engine."""
    # The compiler disables the fast path itself, and takes the method unwrapped.
    uniform = _as_it_is if used == "compiled" else eager_executor(subject.modules)
    if used == "eager":
        return uniform
    engine, is_watched = ENGINES[used], subject.is_vouched
    if used == "graph":
        engine = partial(Graphed, generators=subject.generators)

    def make(method: Executed) -> Executed:
        # Compiled code that is not captured is what was requested, only slower: a message, not an error.
        may_tell = may_fall_back or used == "compiled"
        executed = engine(method, subject.device, tell=tell if may_tell else None)
        return _WatchedOnce(executed, subject) if is_watched else executed

    def give_up(why: str) -> None:
        if not may_fall_back:
            raise LudusError(f"'engine' is {used}, but {why}; set engine to auto, or to eager")
        if tell is not None:
            tell(f"the update is {_UNUSED[used]} no more: {why}; it is called eagerly")

    return lambda method: Guarded(
        uniform(method),
        make,
        lambda: ModuleGuard(subject.modules, subject.others),
        lambda: why_not_repeatable(subject.owner, subject.modules),
        give_up,
    )


def eager_executor(modules: Sequence[nn.Module]) -> Executor:
    """Return an executor that calls updates of these networks eagerly."""
    return _Uniform if has_attention(modules) else _as_it_is


def _as_it_is(method: Executed) -> Executed:
    return method


class _Uniform:
    """An update without torch's fast path of attention, which a tape could not take."""

    def __init__(self, method: Executed) -> None:
        self._method = method

    def __call__(self, *inputs: object) -> Any:
        """Return the result of the update."""
        with one_attention():
            return self._method(*inputs)


def _best(subject: Subject, *, is_long: bool, notes: list[str]) -> EngineName:
    """Return the fastest engine that can be used, and note why a faster one cannot."""
    is_cuda = subject.device.type == "cuda"
    quick: EngineName = "graph" if is_cuda else "tape"
    reasons: dict[EngineName, str] = {}
    # On CUDA kernel launches dominate, and a graph removes them at once; compiling takes a minute.
    tried: list[EngineName] = [quick]
    if is_long:
        tried.insert(1 if is_cuda else 0, "compiled")
    for engine in tried:
        reason = subject.why_not(engine)
        if reason is None:
            notes += [_sentence([other], why) for other, why in reasons.items()]
            return engine
        reasons[engine] = reason
    if len({*reasons.values()}) == 1:
        notes.append(_sentence([*reasons], reasons[quick]))
    else:
        notes += [_sentence([other], why) for other, why in reasons.items()]
    return "eager"


def _sentence(engines: Sequence[EngineName], reason: str) -> str:
    words = [_UNUSED[engine] for engine in engines]
    what = f"not {words[0]}" if len(words) == 1 else f"neither {' nor '.join(words)}"
    return f"the update is {what}: {reason}"


class _WatchedOnce:
    """An executed update that checks at its first call that what declares is_repeatable is deterministic."""

    def __init__(self, update: Executed, subject: Subject) -> None:
        self.update = update
        self._subject: Subject | None = subject

    def __call__(self, *inputs: object) -> Any:
        """Return the result of the update."""
        if self._subject is None:
            return self.update(*inputs)
        owner, modules = self._subject.owner, self._subject.modules
        state = PlainState(owner, *modules, in_update=True)
        result = self.update(*inputs)
        if changed := state.changed():
            raise LudusError(
                f"{changed[0]}, yet says that it is_repeatable; only what it does to tensors is repeated,"
                " so keep such state in tensors (a module's are buffers) and change them in place, or take"
                " 'is_repeatable' out"
            )
        self._subject = None
        return result
