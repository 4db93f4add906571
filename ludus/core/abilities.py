"""What a trainer may be able to do with weights that its run has kept; the commands look for it.

Each is called after `prepare`. A trainer has an ability if it has the methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class KeepsWeights(Protocol):
    """Knows its weights in a saved state."""

    def weights_of(self, state: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the weights that a saved state would be evaluated with."""


@runtime_checkable
class Evaluates(KeepsWeights, Protocol):
    """Can be evaluated from weights alone: `ludus eval`."""

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of saved weights on what was kept for that."""


@runtime_checkable
class Recalls(Protocol):
    """Has several networks that kept weights may be of."""

    def recall(self, about: Mapping[str, Any], /) -> None:
        """Take the network of the weights that have this note."""


@runtime_checkable
class Plays(KeepsWeights, Protocol):
    """Can be watched: `ludus play`."""

    def film(self, weights: Mapping[str, Any], index: int, fps: float) -> Sequence[Any]:
        """Return pictures, uint8 of (height, width, 3), of what saved weights do."""


@runtime_checkable
class Narrates(KeepsWeights, Protocol):
    """Can be read, move by move: `ludus play` prints it."""

    def narrate(self, weights: Mapping[str, Any], index: int) -> Iterable[str]:
        """Return what saved weights do in one game, a few lines for each move."""


@runtime_checkable
class Exports(KeepsWeights, Protocol):
    """Can be used without torch: `ludus export`."""

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Write saved weights as something that runs without torch."""


@runtime_checkable
class NamesRun(Protocol):
    """The config of a trainer that works with the weights of an earlier run, and keeps none of its own."""

    @property
    def run(self) -> str:
        """The directory of the earlier run."""


class EvaluationJob(Protocol):
    """An evaluation but for the weights; made from a config in whichever process it is done."""

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics that are logged, as NaN, where an evaluation gives no result."""

    def rebuild(self) -> object:
        """Make all that it needs, to find out whether it can be made; raise LudusError where not."""

    def evaluate(
        self, weights: Mapping[str, Any], /, *, is_interrupted: Callable[[], bool]
    ) -> Mapping[str, float]:
        """Return the metrics of these weights, those of every score among them.

        The same in whichever process it is called; Interrupted if the run is asked to pause.
        """


@runtime_checkable
class EvaluatesBeside(Protocol):
    """Can be evaluated in a process beside training: `ludus.AsyncEvaluator(config)`.

    Asked of the class of the config's kind, found through the registry: no trainer is built there.
    """

    @staticmethod
    def evaluation_job(config: Any, /) -> EvaluationJob:
        """Return what evaluates runs of this config."""
