"""Readable names of saved models: `<architecture>_<dataset>_<experiment>_epoch_<n>`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ludus.supervised.trainer import BaseTrainer

_MAX_NAME = 150


def named_in_full(trainer: BaseTrainer, name: str) -> str:
    """Return the name prefixed with architecture, data set and experiment."""
    words = [trainer.model.architecture, trainer.dataset_name, trainer.config.experiment]
    told = re.sub(r"[^a-z0-9_.-]+", "-", "_".join(words).lower()).lstrip(".-")
    return f"{told[:_MAX_NAME]}_{name}"
