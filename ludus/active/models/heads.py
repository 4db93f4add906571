"""A new last layer for a network that was trained for other classes; the old one is kept for scores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from ludus.active.models.features import last_linear
from ludus.core.errors import ConfigError
from ludus.nn.model import Model
from ludus.seeds import derive, forked


class Head:
    """Puts a new last linear layer into a model's network; `source` puts the old one back for a while."""

    def __init__(self, model: Model) -> None:
        """Take a model with the head that it was trained with."""
        found = last_linear(model.module)
        if found is None:
            raise ConfigError(
                "the network has no linear layer that 'new_head' could replace; set it to null, and give the"
                " network as many outputs as there are classes"
            )
        self._model = model
        self._name, self._old = found
        self._new = self._old

    def renew(self, outputs: int, *, seed: int, name: str) -> None:
        """Put a layer with this many outputs in its place, drawn by (seed, name) alone."""
        old = self._old
        with forked(derive(seed, f"head/{name}")):
            self._new = nn.Linear(old.in_features, outputs, bias=old.bias is not None)
        self._new.to(old.weight.device, old.weight.dtype)
        self._put(self._new)

    @contextlib.contextmanager
    def source(self) -> Iterator[None]:
        """Let the network say, within the block, what it was trained to say."""
        self._put(self._old.to(self._new.weight.device))
        try:
            yield
        finally:
            self._put(self._new)

    def _put(self, layer: nn.Linear) -> None:
        parent, _, key = self._name.rpartition(".")
        if key:
            setattr(self._model.module.get_submodule(parent), key, layer)
        else:
            self._model.module = layer
        layer.train(self._model.module.training)
