"""A run whose whole trainer is prepared to use its kept weights: for `ludus eval`, `play` and `export`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ludus.core.abilities import KeepsWeights, Recalls, find_ability
from ludus.core.trainer import Trainer
from ludus.session.build import rebuild_trainer
from ludus.session.device import Compute
from ludus.session.kept import Tell, as_first, newest, weights_in
from ludus.session.logger import Logger
from ludus.store.checkpoint import Saved
from ludus.store.storage import Storage

A = TypeVar("A", bound=KeepsWeights)
P = TypeVar("P", bound=Trainer)


@dataclass(frozen=True)
class PreparedRun:
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
    ) -> PreparedRun:
        """Open a run whose trainer is to be prepared: one of a script needs that script.

        `check` refuses a trainer that cannot do what is asked, before anything is built.
        """
        trainer, storage = rebuild_trainer(path, [], is_for_weights=True, script=script, tell=tell)
        check(trainer)
        return cls(trainer, storage, newest(path, storage, trainer.config), tell)

    @contextlib.contextmanager
    def prepared(
        self, model: str, able: Callable[[Trainer], A], *, is_last_best: bool = True
    ) -> Iterator[UsableWeights[A]]:
        """Yield the object with an ability of the prepared trainer, and the weights of this name.

        A run without a best model gives its last, unless `is_last_best` is false.
        """
        trainer = self.trainer
        # What a run keeps besides weights, such as tuned models, is found in its directory.
        trainer.set_storage(self.storage)
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
                    is_last_best=is_last_best,
                )
                if about and (recalls := find_ability(trainer, Recalls)) is not None:
                    recalls.recall(about)
                yield UsableWeights(able(trainer), weights, about, source)
            finally:
                trainer.close()


@dataclass(frozen=True)
class UsableWeights(Generic[A]):
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
