"""The update of a Model, without a config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.fit.update import ModelUpdate, StepModule
from ludus.nn.learner import Learner
from ludus.nn.memory_format import MemoryFormat
from ludus.nn.model import Model
from ludus.nn.recompute import Recomputed


def model_update(
    model: Model,
    optimizer: Any,
    *,
    accumulate: int = 1,
    memory_format: MemoryFormat = "contiguous",
    recomputed: Sequence[str] = (),
    **options: Any,
) -> ModelUpdate:
    segments = Recomputed(model.module, recomputed) if recomputed else None
    step = StepModule(model, memory_format, segments)
    learner = Learner(model.module, optimizer, called=step, **options)
    return ModelUpdate(model, learner, accumulate=accumulate)
