"""Try a model on one batch before training, so that a mismatch is told in a sentence, not a traceback."""

from __future__ import annotations

from typing import Any

import torch

from ludus.core.errors import ConfigError
from ludus.data.batches import MemoryBatches
from ludus.data.loader_batches import LoaderBatches
from ludus.nn.model import Model


def try_model(model: Model, data: MemoryBatches | LoaderBatches) -> None:
    """Compute the loss of the first batch without learning; raise ConfigError if that cannot be."""
    if not data.is_repeatable:
        # A stream might be used up by looking at it.
        return
    data.start(0)
    batch = data.next()
    data.load_state_dict({"epoch": -1, "position": 0})
    try:
        with torch.no_grad(), model.evaluating():
            model.evaluation_step(batch, 0)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"the model cannot learn from this data: {problem} (the batch is {_shapes(batch)},"
            f" the loss {model.loss}); make model.inputs and model.outputs fit the data"
        ) from None


def _shapes(batch: Any) -> str:
    if isinstance(batch, torch.Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} {tuple(batch.shape)}"
    if isinstance(batch, dict):
        return ", ".join(f"{key}: {_shapes(value)}" for key, value in batch.items())
    if isinstance(batch, list | tuple):
        return " and ".join(_shapes(value) for value in batch)
    return type(batch).__name__
