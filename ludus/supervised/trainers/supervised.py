"""The trainer kind `supervised`: the base trainer, with models saved under names that people know."""

from __future__ import annotations

import re

from ludus.core import Every, Run
from ludus.registry import register_trainer
from ludus.run.observers import Milestones
from ludus.supervised.base import BaseTrainer


@register_trainer("supervised")
class Trainer(BaseTrainer):
    """Saves milestones as `<architecture>_<dataset>_<experiment>_epoch_<n>`."""

    def _prepare_observers(self) -> None:
        super()._prepare_observers()
        cadence = Every(self.config.milestone_every_epochs, "epoch")
        self.watchers["milestones"] = Milestones(
            cadence, name=self.checkpoint_name, save=self.keep_weights
        )

    def checkpoint_name(self, run: Run) -> str:
        """Return the name of the weights saved now."""
        words = [self.model.architecture, self.dataset_name, self.config.experiment, "epoch"]
        name = "_".join([*words, str(run.counters["epoch"])]).lower()
        return re.sub(r"[^a-z0-9_.-]+", "-", name).lstrip(".-")
