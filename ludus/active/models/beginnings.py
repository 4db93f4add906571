"""The initial weights of each model of a run: saved, as a script may build others on resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludus.core import states
from ludus.nn.model import Model
from ludus.store.checkpoint import digest_of
from ludus.store.codec import Segment


class Beginnings:
    """A segment for each model, written once and shared by all checkpoints of a run."""

    def __init__(self) -> None:
        self._kept: list[Segment] = []

    def keep(self, models: Sequence[Model]) -> None:
        """Store the current weights of these models."""
        copies = [
            {name: one.detach().to("cpu", copy=True) for name, one in model.state_dict().items()}
            for model in models
        ]
        self._kept = [Segment.of(copy) for copy in copies]

    def put_back(self, place: int, model: Model) -> None:
        """Restore the initial weights of this model, the one at this index, if they are stored."""
        if self._kept:
            model.load_state_dict(self._kept[place].tensors)

    def load(self, saved: Mapping[str, Any], models: Sequence[Model]) -> bool:
        """Load the initial weights of a saved run into all models; return whether any differed."""
        found = states.rows(saved, "begun", length=len(self._kept))
        for place, one in enumerate(found):
            if not isinstance(one, Segment):
                raise states.StateError(f"begun/{place}", f"is a {type(one).__name__}")
        others = [
            (model, one)
            for model, one in zip(models, found, strict=False)
            if digest_of({"": one}) != digest_of({"": Segment.of(dict(model.state_dict()))})
        ]
        for model, one in others:
            model.load_state_dict(one.tensors)
        self._kept = found
        return bool(others)

    def state(self) -> list[Segment]:
        """Return all segments, in the order of the models."""
        return list(self._kept)
