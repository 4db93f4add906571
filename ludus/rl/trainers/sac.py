"""The trainer kind `sac`."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.rl.agents.sac import Sac, SacConfig
from ludus.rl.step_trainer import StepRLTrainer


@register_trainer("sac")
class SacTrainer(StepRLTrainer):
    """Trains a SAC agent."""

    Config = SacConfig
    Agent = Sac
