"""The trainer kind `vanilla_ppo`: independent PPO of all agents, clipped or with a KL penalty."""

from __future__ import annotations

from torch import nn

from ludus.arena.libraries import ValueEstimators
from ludus.arena.objectives.ppo import ClipPpo, KlPenaltyPpo, PpoParameters
from ludus.arena.rl_config import RlHyperParameters
from ludus.arena.rl_trainer import TensorDictRlTrainer
from ludus.config.registry import register_trainer


class VanillaPpoParameters(RlHyperParameters):
    """The parameters of a run of PPO in the arena."""

    ppo: PpoParameters
    """The parameters of the update."""


@register_trainer("vanilla_ppo")
class VanillaPpoTrainer(TensorDictRlTrainer):
    """Every agent learns by proximal policy optimization from its own rewards."""

    Config = VanillaPpoParameters
    config: VanillaPpoParameters

    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        """Return TorchRL's PPO loss masked by turns, and its generalised advantage estimation."""
        rl, ppo = self.config.rl, self.config.ppo
        made = ClipPpo if ppo.loss.kind == "clip" else KlPenaltyPpo
        loss_module = made(self.agents, rl, ppo)
        loss_module.make_value_estimator(ValueEstimators.GAE, gamma=rl.gamma, lmbda=rl.gae_lambda)
        return loss_module, loss_module.value_estimator
