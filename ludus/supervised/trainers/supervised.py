"""The trainer kind `supervised`: the base trainer, with models saved under names that people know."""

from __future__ import annotations

import re

from ludus.core import Run
from ludus.registry import register_trainer
from ludus.supervised.base import BaseTrainer

_MAX_NAME = 150


@register_trainer("supervised")
class Trainer(BaseTrainer):
    """Saves milestones as `<architecture>_<dataset>_<experiment>_epoch_<n>`."""

    def checkpoint_name(self, run: Run) -> str:
        """Return the name of the weights saved now."""
        words = [self.model.architecture, self.dataset_name, self.config.experiment]
        name = re.sub(r"[^a-z0-9_.-]+", "-", "_".join(words).lower()).lstrip(".-")
        return f"{name[:_MAX_NAME]}_{super().checkpoint_name(run)}"
