"""The trainer kind `iqn`."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.rl.agents.iqn import Iqn, IqnConfig
from ludus.rl.step_trainer import StepRLTrainer


@register_trainer("iqn")
class IqnTrainer(StepRLTrainer):
    """Trains an IQN agent."""

    Config = IqnConfig
    Agent = Iqn
