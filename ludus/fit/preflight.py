"""Preflight checks: compute the loss of one batch, to report a mismatch before training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.memory import Batches
from ludus.nn.model import CLASS_LOSSES, FROM_MODEL, Model


def check_model(model: Model, data: Batches, *, what: str = "learn from this data") -> None:
    """Compute the loss of the first batch without learning; raise ConfigError if that fails."""
    batch = first_batch(data)
    if batch is None:
        return
    try:
        with torch.no_grad(), model.evaluating():
            result = model.evaluation_step(batch, 0)
            if not isinstance(result, Mapping) or "loss" not in result:
                found = "nothing" if result is None else f"a {type(result).__name__} without one"
                raise TypeError(f"evaluation_step returned no 'loss' but {found}")
    except LudusError as error:
        raise ConfigError(str(error)) from None
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"the model cannot {what}: {problem} (the batch is {_shapes(batch)},"
            f" the loss {model.loss}); {_remedy(model)}"
        ) from None


def _remedy(model: Model) -> str:
    if type(model).training_step is Model.training_step and hasattr(model.module, "training_step"):
        return (
            "the network's own training_step is not called: move it to a class that derives from ludus.Model,"
            " which holds the network"
        )
    if model.loss == FROM_MODEL:
        return "make the batches such as the model's forward takes"
    remedy = "make model.inputs and model.outputs fit the data"
    if model.loss in CLASS_LOSSES:
        remedy += (
            "; the logits of your own network are (batch, classes), or (batch, classes, n) where targets are"
            " (batch, n)"
        )
    return remedy


def refuse_episodes(episodes: int | None, seed: int | None) -> None:
    """Raise ConfigError if options of an evaluation in episodes were given."""
    if episodes is not None or seed is not None:
        raise ConfigError(
            "this run was trained on data, not in episodes: --episodes and --seed do not apply"
        )


def first_batch(data: Batches) -> Any:
    """Return the first batch, leaving the data unchanged; None if reading might consume it."""
    if not data.is_repeatable:
        return None
    data.start(0)
    batch = data.next()
    data.load_state_dict({"epoch": -1, "position": 0})
    return batch


def _shapes(batch: object) -> str:
    if isinstance(batch, torch.Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} {tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return ", ".join(f"{key}: {_shapes(value)}" for key, value in batch.items())
    if isinstance(batch, list | tuple):
        return " and ".join(_shapes(value) for value in batch)
    return type(batch).__name__
