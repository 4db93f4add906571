"""Optional abilities of a trainer: protocols for evaluating, playing or exporting the weights of a run.

A trainer has an ability if it, or an object that its `abilities()` returns, has the methods; the commands
look for them with `find_ability`. Each is called after `prepare`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import FunctionType
from typing import Any, Protocol, TypeVar, runtime_checkable

from ludus.core.errors import ConfigError, LudusError

T = TypeVar("T")


@runtime_checkable
class KeepsWeights(Protocol):
    """Finds the model weights in a saved state."""

    def weights_of(self, state: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the weights that an evaluation of a saved state uses."""


@runtime_checkable
class Evaluates(KeepsWeights, Protocol):
    """Evaluates saved weights: `ludus eval`."""

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of saved weights on held-out data, or in evaluation episodes."""


OWN_CLASS = "trainer"
"""The role, in `Supplied.by_script`, of a trainer class of the script's own."""


@dataclass(frozen=True)
class Supplied:
    """The parts of a run that its config does not describe."""

    network: object
    """A network that the caller of `ludus.load` gave, or a maker of one; None if there is none."""
    by_script: Collection[str]
    """The roles of what the script gave when the run began; empty if its trainer is here."""
    inputs: object = None
    """Example inputs to trace a network with; None takes those of its data."""


def is_maker(given: object) -> bool:
    """Return whether this is a function that makes a network, and not itself one, which is called too."""
    return isinstance(given, type) or (callable(given) and not hasattr(given, "state_dict"))


def made(network: object) -> object:
    """Return a network that was given, or what a given function makes."""
    return network() if callable(network) and is_maker(network) else network


def ungiven(what: str, name: str, *, remedy: str = "one like it (network=...), or ") -> ConfigError:
    """Return the error for a run whose script gave something that is not given again."""
    return ConfigError(
        f"the {what} of the run '{name}' was given by its script; give {remedy}the script (script=...;"
        " --script on the command line)"
    )


class Kept(KeepsWeights, Protocol):
    """The networks of a run, rebuilt without its data, envs and optimizers."""

    def loaded(self, weights: Mapping[str, Any], about: Mapping[str, Any], /) -> object:
        """Return what was trained, with these weights and in eval mode; `about` is their note."""


@runtime_checkable
class Loads(Protocol):
    """Can be used without a trainer: `ludus.load`. Called on a trainer that was not prepared."""

    def kept(self, given: Supplied, /) -> Kept:
        """Rebuild the networks that kept weights belong to, on the device of the settings.

        Raises LudusError if a script gave them, and they are not given again.
        """


@runtime_checkable
class MeasuresOthers(Kept, Protocol):
    """Kept networks that can be measured on other data than the run's: `ludus eval RUN --data`."""

    def measure_others(
        self, weights: Mapping[str, Any], about: Mapping[str, Any], changes: Sequence[str]
    ) -> Mapping[str, float]:
        """Return the metrics of these weights on the data of the config with `key=value` changed."""


@dataclass(frozen=True)
class Program:
    """A network with the inputs that it is traced with."""

    module: Any
    """A torch network in eval mode."""
    inputs: Mapping[str, Any]
    """An example of each input by its name, a batch of two."""
    output: str
    """The name of the output."""
    is_by_name: bool = False
    """Whether `forward` takes the inputs by keyword."""


@runtime_checkable
class MakesPrograms(Kept, Protocol):
    """Kept networks that can be traced: `ludus export --format torch|onnx`."""

    def programs(
        self, weights: Mapping[str, Any], about: Mapping[str, Any], /
    ) -> Mapping[str, Program]:
        """Return what these weights compute, by the name of the role or agent; of only one the name is ''."""


@runtime_checkable
class Recalls(Protocol):
    """Has several networks that saved weights may belong to."""

    def recall(self, about: Mapping[str, Any], /) -> None:
        """Select the network that the weights with this note belong to."""


@runtime_checkable
class Plays(KeepsWeights, Protocol):
    """Renders what saved weights do: `ludus play`."""

    def film(self, weights: Mapping[str, Any], index: int, fps: float) -> Sequence[Any]:
        """Return frames, uint8 of (height, width, 3), of saved weights acting."""


@runtime_checkable
class Narrates(KeepsWeights, Protocol):
    """Describes a game move by move: `ludus play` prints it."""

    def narrate(self, weights: Mapping[str, Any], index: int) -> Iterable[str]:
        """Return the moves of saved weights in one game, a few lines for each."""


@runtime_checkable
class PlaysWithPeople(KeepsWeights, Protocol):
    """Lets a person act for some of the agents: `ludus play --as AGENT`."""

    def play_with(
        self,
        weights: Mapping[str, Any],
        index: int,
        people: Sequence[str],
        ask: Callable[[str], str],
    ) -> Iterable[str]:
        """Yield the moves of one game; `ask` shows a text to a person and returns the answer."""


@runtime_checkable
class Estimates(Protocol):
    """Counts what a run would ask of a paid service: `ludus train --dry-run`. Called after `prepare`."""

    def estimate(self) -> Sequence[str]:
        """Return requests, tokens and money, as lines."""


@runtime_checkable
class Exports(KeepsWeights, Protocol):
    """Exports weights to a form that runs without torch: `ludus export`."""

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Write saved weights to `path` in a form that runs without torch."""


@runtime_checkable
class NamesRun(Protocol):
    """Config of a trainer that uses the weights of an earlier run and saves none itself."""

    @property
    def run(self) -> str:
        """Directory of the earlier run."""


class EvaluationJob(Protocol):
    """An evaluation without its weights, built from a config in the process that runs it."""

    @property
    def metrics(self) -> Sequence[str]:
        """Names of the metrics that are logged as NaN if an evaluation gives no result."""

    def rebuild(self) -> object:
        """Build everything it needs, as a check; raise LudusError if that fails."""

    def evaluate(
        self, weights: Mapping[str, Any], /, *, is_interrupted: Callable[[], bool]
    ) -> Mapping[str, float]:
        """Return the metrics of these weights, including those of every score.

        The result is the same in any process; raises Interrupted if the run is asked to pause.
        """


@runtime_checkable
class EvaluatesBeside(Protocol):
    """Can be evaluated asynchronously, in a child process: `ludus.AsyncEvaluator(config)`.

    The class is found in the registry by the config's kind; no trainer is built in the child.
    """

    @staticmethod
    def evaluation_job(config: Any, /) -> EvaluationJob:
        """Return the evaluation of runs with this config."""


class HasAbilities(Protocol):
    """A trainer: it says which objects have its abilities."""

    def abilities(self) -> Sequence[object]:
        """Return the objects whose methods are the trainer's abilities."""


class HasConfig(HasAbilities, Protocol):
    """A trainer with the config of its run."""

    config: Any


def find_ability(trainer: HasAbilities, wanted: type[T]) -> T | None:
    """Return the first of a trainer's objects that has this ability; None if there is none."""
    found = next((one for one in trainer.abilities() if isinstance(one, wanted)), None)
    if found is not None:
        _check_methods(found, wanted)
    return found


def _check_methods(found: object, wanted: type) -> None:
    """Raise ConfigError unless the methods of an ability take the arguments that they are called with."""
    for base in wanted.__mro__:
        for name, method in vars(base).items() if getattr(base, "_is_protocol", False) else ():
            if name[0] == "_" or not isinstance(method, FunctionType):
                continue
            called = list(inspect.signature(method).parameters.values())[1:]
            positional = [one for one in called if one.kind is not one.KEYWORD_ONLY]
            by_name = {one.name: None for one in called if one.kind is one.KEYWORD_ONLY}
            try:
                inspect.signature(getattr(found, name)).bind(*positional, **by_name)
            except TypeError as error:
                plain = [one.replace(annotation=one.empty) for one in called if one.name[0] != "_"]
                raise ConfigError(
                    f"{type(found).__name__}.{name} is called as {name}{inspect.Signature(plain)}, and cannot"
                    f" be: {error}"
                ) from None


@runtime_checkable
class KeepsBests(Protocol):
    """A part that decides which models are the best, as `ludus.judge.Judge` does."""

    @property
    def first(self) -> str | None:
        """The name of the first score that keeps models."""

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best model by the first score."""

    @property
    def more_bests(self) -> Mapping[str, Mapping[str, Any]]:
        """The best model by each further score, by the score's name."""

    @property
    def runners_up(self) -> Sequence[Mapping[str, Any]]:
        """The models kept besides the best ones."""

    def forget_models(self, names: Collection[str] | None, /) -> None:
        """Drop the records of models whose weights are missing; None means all."""


def unable(trainer: HasConfig, words: str, *, command: str = "") -> LudusError:
    """Return the error for a trainer without an ability: `words` say what it lacks.

    If its weights belong to another run, the error names that run, and the `command` for it.
    """
    config, kind = trainer.config, f"a run of kind '{trainer.config.kind}'"
    has_weights = find_ability(trainer, KeepsWeights) is not None
    if has_weights or not isinstance(config, NamesRun):
        return LudusError(f"{kind} {words}")
    way = f": ludus {command} {quote(str(config.run))}" if command else ""
    return LudusError(
        f"{kind} keeps no weights of its own, for it works with those of {config.run}; give that run{way}"
    )
