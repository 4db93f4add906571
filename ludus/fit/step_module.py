"""A model's training_step as a module, for functional calls and for the compiler."""

from __future__ import annotations

from torch import Tensor, nn

from ludus.nn.memory_format import MemoryFormat, with_channels_last
from ludus.nn.model import Model
from ludus.nn.recompute import Recomputed


class StepModule(nn.Module):
    """Wraps `training_step` as a forward pass, so that it can be called with other weights."""

    def __init__(
        self,
        model: Model,
        memory_format: MemoryFormat = "contiguous",
        recomputed: Recomputed | None = None,
    ) -> None:
        super().__init__()
        self.module = model.module
        self._has_channels_last = memory_format == "channels_last"
        self._recomputed = recomputed
        # In a list, so that torch does not register the Model as a child of this module.
        self._model = [model]

    def forward(self, batch: object, batch_idx: int) -> dict[str, Tensor]:
        """Return the result of the model's training_step."""
        if self._has_channels_last:
            batch = with_channels_last(batch)
        if self._recomputed is None:
            return self._model[0].training_step(batch, batch_idx)
        with self._recomputed.on():
            return self._model[0].training_step(batch, batch_idx)
