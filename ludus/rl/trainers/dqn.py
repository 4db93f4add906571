"""The trainer kind `dqn`."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.rl.agents.dqn import Dqn, DqnConfig
from ludus.rl.step_trainer import StepRLTrainer


@register_trainer("dqn")
class DqnTrainer(StepRLTrainer):
    """Trains a DQN agent."""

    Config = DqnConfig
    Agent = Dqn
