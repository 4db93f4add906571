"""Load what a run trained: `ludus.load`, and the one way in which commands come by kept weights.

Everything starts from a `KeptRun`: the directory, the trainer that its config or its script makes, and the
manifest of its newest checkpoint. `ludus.load` rebuilds the networks alone (`Loads`); evaluating, playing and
exporting prepare the whole trainer.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from ludus.config.registry import find, load_plugin
from ludus.core.abilities import (
    OWN_CLASS,
    KeepsWeights,
    Loads,
    NamesRun,
    Recalls,
    Supplied,
    find_ability,
)
from ludus.core.errors import LudusError, RunError, nearest
from ludus.core.states import StateError
from ludus.core.trainer import Trainer
from ludus.session.build import rebuild_trainer, trainer_of
from ludus.session.device import Compute
from ludus.session.kept import as_first, weights_in
from ludus.session.logger import Logger
from ludus.session.resumption import GIVEN, refuse_edited
from ludus.store import checkpoint
from ludus.store.checkpoint import Saved
from ludus.store.directory import found_run
from ludus.store.note import builder, read_note
from ludus.store.places import below, is_url, open_storage
from ludus.store.storage import Storage

T = TypeVar("T")
A = TypeVar("A", bound=KeepsWeights)
P = TypeVar("P", bound=Trainer)
Tell = Callable[[str], None]


@overload
def load(
    run: str | Path,
    model: str | Path = ...,
    *,
    root: str | Path = ...,
    agent: str | None = ...,
    network: object = ...,
    script: str | Path | None = ...,
    plugin: str | Sequence[str] = ...,
    device: str | None = ...,
) -> Any: ...
@overload
def load(
    run: str | Path,
    model: str | Path = ...,
    *,
    expected: type[T],
    root: str | Path = ...,
    agent: str | None = ...,
    network: object = ...,
    script: str | Path | None = ...,
    plugin: str | Sequence[str] = ...,
    device: str | None = ...,
) -> T: ...
def load(
    run: str | Path,
    model: str | Path = "best",
    *,
    expected: type[Any] = object,
    root: str | Path = "runs",
    agent: str | None = None,
    network: object = None,
    script: str | Path | None = None,
    plugin: str | Sequence[str] = (),
    device: str | None = None,
) -> Any:
    """Return what a run trained, with kept weights and in eval mode.

    A torch network for supervised and active runs; for `ppo`, `dqn` and other agents a `ludus.Policy`, which
    acts and predicts; a player for a game of one network; for several roles or agents a mapping of players or
    networks by name, of which `agent` chooses one.

    `run` is a directory, a URL, or a name below `root`; `model` is best, last, best-<score>, the name of a
    kept model, or its directory. Where a script gave the network, `network` is a module like it, or a
    function that makes one; `script` is the script itself with its arguments, run up to its `fit`. `plugin`
    names modules or files to import first; those that the run was begun with are loaded by themselves.
    `device` replaces that of the run's settings. Raises RunError if what is found is not `expected`.
    """
    for one in [plugin] if isinstance(plugin, str) else plugin:
        load_plugin(one)
    place = _place(run, root)
    overrides = [] if device is None else [f"settings.device={device}"]
    kept, by_script = _opened(place, overrides, None if script is None else str(script))
    trainer = kept.trainer
    loads = find_ability(trainer, Loads)
    if loads is None:
        raise _unloadable(trainer)
    with Compute.of(trainer.config):
        rebuilt = loads.kept(Supplied(network, () if script else by_script))
        _, (weights, about) = weights_in(
            kept.storage,
            kept.saved,
            str(model),
            weights_of=rebuilt.weights_of,
            tell=kept.tell,
            is_last_best=False,
        )
        try:
            found = rebuilt.loaded(weights, about)
        except StateError as error:
            raise RunError(
                f"the weights of model {model} do not fit what {place} trained: {error.key} {error.problem};"
                " are they of another run, or is the network another?"
            ) from None
    return _as_expected(_one_of(found, agent, place), expected, place)


def _place(run: str | Path, root: str | Path) -> str:
    """Return the location of a run that is given by location, or by its name below the root."""
    is_there = is_url(str(run)) or open_storage(run).exists("run.json")
    named = below(root, str(run))
    is_name = not is_there and "/" not in str(run) and open_storage(named).exists("run.json")
    return named if is_name else str(run)


def _opened(
    place: str, overrides: list[str], script: str | None
) -> tuple[KeptRun, tuple[str, ...]]:
    """Open a run whose networks alone are wanted; return it with the roles of what its script gave."""
    storage = found_run(place)
    note, tell = read_note(storage), warnings.warn
    builder(storage, note, is_for_weights=True)  # raises for a damaged note
    trainer = trainer_of(storage, note, overrides, path=place, script=script, tell=tell)
    saved = _newest(place, storage, trainer)
    facts = saved.manifest.get("fingerprint", {})
    given = tuple(name.removeprefix(GIVEN) for name in facts if name.startswith(GIVEN))
    if not given and note.get("model_origin", note.get("origin")) == "script":
        given = (OWN_CLASS,)
    return KeptRun(trainer, storage, saved, tell), given


def _newest(path: str | Path, storage: Storage, trainer: Trainer) -> Saved:
    """Return the newest manifest of a run; raise RunError if there is none, or its config was edited."""
    saved = checkpoint.told_last(storage)
    if saved is None:
        raise RunError(f"{path} has no checkpoint yet; let it run until it has saved one")
    if type(trainer.config) is find("trainer", trainer.config.kind).Config:
        refuse_edited(storage, saved, trainer.config)
    return saved


def _unloadable(trainer: Trainer) -> LudusError:
    kind = f"a run of kind '{trainer.config.kind}'"
    if isinstance(trainer.config, NamesRun) and find_ability(trainer, KeepsWeights) is None:
        return LudusError(
            f"{kind} keeps no weights of its own, for it works with those of {trainer.config.run}; load that"
        )
    return LudusError(
        f"{kind} cannot be loaded; give its trainer a method `kept` (ludus.core.abilities.Loads)"
    )


def _one_of(found: object, agent: str | None, place: str) -> object:
    """Return the one of this name from a mapping of networks or players; without a name, all."""
    if agent is None:
        return found
    if not isinstance(found, Mapping):
        raise LudusError(
            f"{place} trained one {type(found).__name__}, so there is no agent '{agent}' to choose; leave"
            " agent away"
        )
    if agent not in found:
        raise LudusError(f"{place} has no agent '{agent}'.{nearest(agent, found)}")
    chosen: object = found[agent]
    return chosen


def _as_expected(found: object, expected: type[Any], place: str) -> object:
    if not isinstance(found, expected):
        what = f"a {type(found).__name__}"
        if isinstance(found, Mapping):
            what = f"several networks or players ({', '.join(found)}; agent chooses one)"
        raise RunError(
            f"{place} is a run of another kind: it gives {what}, not a {expected.__name__}"
        )
    return found


@dataclass(frozen=True)
class KeptRun:
    """A run whose weights are asked for."""

    trainer: Trainer
    storage: Storage
    saved: Saved
    """The manifest of its newest checkpoint, without state."""
    tell: Tell

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        script: str | None = None,
        check: Callable[[Trainer], object] = lambda trainer: None,
        tell: Tell = warnings.warn,
    ) -> KeptRun:
        """Open a run whose trainer is to be prepared: one of a script needs that script.

        `check` refuses a trainer that cannot do what is asked, before anything is built.
        """
        trainer, storage = rebuild_trainer(path, [], is_for_weights=True, script=script, tell=tell)
        check(trainer)
        return cls(trainer, storage, _newest(path, storage, trainer), tell)

    @contextlib.contextmanager
    def prepared(self, model: str, able: Callable[[Trainer], A]) -> Iterator[Chosen[A]]:
        """Yield the object with an ability of the prepared trainer, and the weights of this name."""
        trainer = self.trainer
        with Compute.of(trainer.config):
            prepare(trainer)
            try:
                one = able(trainer)
                source, (weights, about) = weights_in(
                    self.storage,
                    self.saved,
                    as_first(trainer.parts(), model),
                    weights_of=one.weights_of,
                    tell=self.tell,
                )
                if about and (recalls := find_ability(trainer, Recalls)) is not None:
                    recalls.recall(about)
                yield Chosen(able(trainer), weights, about, source)
            finally:
                trainer.close()


@dataclass(frozen=True)
class Chosen(Generic[A]):
    """Kept weights, and the object that can use them."""

    one: A
    weights: Mapping[str, Any]
    about: Mapping[str, Any]
    """Their note; empty for those of a checkpoint."""
    source: str
    """The directory of the model, or the checkpoint."""


def prepare(trainer: P) -> P:
    """Prepare a trainer that is not to run, with no logs, and return it."""
    trainer.set_logger(Logger(Logger.Config(backends=[])))
    trainer.services.seed(trainer.config)
    trainer.prepare(max_steps=None)
    return trainer
