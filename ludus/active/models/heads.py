"""A new head for a network trained for other classes; the old one is kept for scores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from ludus.active.models.features import last_called
from ludus.core.errors import ConfigError
from ludus.nn.model import Inputs, Model
from ludus.seeds import derive, forked


class Head:
    """Replaces the last linear layer of a model's network; `source` restores the old one temporarily."""

    def __init__(self, model: Model) -> None:
        """`model` has the head that it was trained with."""
        layers = [
            (name, one) for name, one in model.module.named_modules() if isinstance(one, nn.Linear)
        ]
        if not layers:
            raise ConfigError(
                "the network has no linear layer that 'new_head' could replace; set it to null, and give the"
                " network as many outputs as there are classes"
            )
        self._model = model
        self._name, self._old = layers[-1]
        self._new = self._old

    def check(self, inputs: Inputs) -> None:
        """Raise ConfigError unless the new layer is the linear layer that the network calls last."""
        if last_called(self._model.module, lambda: self._model(inputs)) is not self._new:
            raise ConfigError(
                f"'new_head' replaces the linear layer that the network lists last, {self._name}, and"
                " the network calls another one last; let its __init__ make the head last"
            )

    def renew(self, outputs: int, *, seed: int, name: str) -> None:
        """Replace it by a layer with this many outputs, initialised by (seed, name) alone."""
        old = self._old
        with forked(derive(seed, f"head/{name}")):
            self._new = nn.Linear(old.in_features, outputs, bias=old.bias is not None)
        self._new.to(old.weight.device, old.weight.dtype)
        self._put(self._new)

    @contextlib.contextmanager
    def source(self) -> Iterator[None]:
        """Restore the original head inside the block."""
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
