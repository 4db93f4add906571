"""A run of which the networks alone are rebuilt, without data, envs and optimizers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ludus.core.abilities import OWN_CLASS, Kept, Loads, Supplied, find_ability, unable
from ludus.core.errors import RunError
from ludus.core.states import StateError
from ludus.session.build import trainer_of
from ludus.session.device import Compute
from ludus.session.kept import Tell, newest, weights_in
from ludus.session.resumption import GIVEN
from ludus.store.checkpoint import Saved
from ludus.store.directory import found_run
from ludus.store.note import builder, read_note
from ludus.store.storage import Storage

T = TypeVar("T")


class NamedWeights(NamedTuple):
    """Kept weights."""

    source: str
    """The directory of the model, or the checkpoint."""
    weights: Mapping[str, Any]
    about: Mapping[str, Any]
    """Their note; empty for those of a checkpoint."""


@dataclass(frozen=True)
class RebuiltRun:
    """The networks of a run, and the directory that their weights are in."""

    storage: Storage
    saved: Saved
    """The manifest of its newest checkpoint, without state."""
    kept: Kept
    tell: Tell

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        place: str,
        *,
        network: object = None,
        inputs: object = None,
        script: str | None = None,
        overrides: Sequence[str] = (),
        tell: Tell = warnings.warn,
    ) -> Iterator[RebuiltRun]:
        """Open the run at a location, and compute as its settings say inside the block.

        `network` and `script` supply what the config does not say: see `ludus.load`; `inputs` are examples to
        trace a network with.
        """
        storage = found_run(place)
        note = read_note(storage)
        builder(storage, note, is_for_weights=True)  # raises for a damaged note
        trainer = trainer_of(storage, note, list(overrides), path=place, script=script, tell=tell)
        loads = find_ability(trainer, Loads)
        if loads is None:
            raise unable(
                trainer,
                "cannot be loaded; give its trainer a method `kept` (ludus.core.abilities.Loads)",
            )
        saved = newest(place, storage, trainer.config)
        by_script = () if script is not None else _by_script(note, saved)
        with Compute.of(trainer.config):
            yield cls(storage, saved, loads.kept(Supplied(network, by_script, inputs)), tell)

    def weights(self, model: str, *, is_last_best: bool = True) -> NamedWeights:
        """Return the kept weights of this name; a run without a best model gives its last, if that may be."""
        source, (weights, about) = weights_in(
            self.storage,
            self.saved,
            model,
            weights_of=self.kept.weights_of,
            tell=self.tell,
            is_last_best=is_last_best,
        )
        return NamedWeights(source, weights, about)

    def use(
        self, chosen: NamedWeights, user: Callable[[Mapping[str, Any], Mapping[str, Any]], T]
    ) -> T:
        """Return what a function makes of weights and their note; raise RunError if they do not fit."""
        try:
            return user(chosen.weights, chosen.about)
        except StateError as error:
            problem = f"'{error.key}' {error.problem}" if error.key else error.problem
            raise RunError(
                f"the weights of {chosen.source} do not fit the network of {self.storage.place}: {problem};"
                " were they kept by another run, or is the network another than it was trained with?"
            ) from None


def _by_script(note: Mapping[str, Any], saved: Saved) -> tuple[str, ...]:
    """Return the roles of what the script of a run gave."""
    facts = saved.manifest.get("fingerprint", {})
    given = tuple(name.removeprefix(GIVEN) for name in facts if name.startswith(GIVEN))
    if not given and note.get("model_origin", note.get("origin")) == "script":
        return (OWN_CLASS,)
    return given
