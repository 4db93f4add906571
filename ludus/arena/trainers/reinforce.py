"""The trainer kind `reinforce`: policy gradients of all agents, by reward-to-go or a critic's advantages."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from ludus.arena.libraries import ValueEstimators
from ludus.arena.objectives.reinforce import Reinforce, ReinforceParameters, RewardToGo
from ludus.arena.rl_config import RlHyperParameters
from ludus.arena.rl_trainer import TensorDictRlTrainer
from ludus.config.registry import register_trainer


class ReinforceHyperParameters(RlHyperParameters):
    """The parameters of a run of REINFORCE in the arena."""

    reinforce: ReinforceParameters
    """The parameters of the update."""

    @property
    def trains_values(self) -> bool:
        """Whether a critic is trained."""
        return self.reinforce.weight.kind == "advantage"

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        yield from super().problems()
        if self.reinforce.weight.kind == "reward_to_go" and self.rl.gae_lambda != 1:
            yield (
                f"'rl.gae_lambda' is {self.rl.gae_lambda:g}, but 'reinforce.weight' is reward_to_go, which"
                " looks to the end of the episode; set it to 1.0, or weigh by advantage"
            )
        if self.rl.num_epochs > 1:
            yield (
                f"'rl.num_epochs' is {self.rl.num_epochs}, but reinforce is right for the weights that played"
                " the episodes, and a second epoch has others; set it to 1, or take vanilla_ppo, which clips"
            )


@register_trainer("reinforce")
class ReinforceTrainer(TensorDictRlTrainer):
    """Every agent learns by REINFORCE from its own rewards."""

    Config = ReinforceHyperParameters
    config: ReinforceHyperParameters

    def _get_loss_module_and_gae(self) -> tuple[nn.Module, nn.Module | None]:
        """Return the loss, and the weights of the steps: reward-to-go, or generalised advantages."""
        rl, params = self.config.rl, self.config.reinforce
        loss_module = Reinforce(self.agents, rl, params)
        if params.weight.kind == "reward_to_go":
            return loss_module, RewardToGo(rl.gamma)
        loss_module.make_value_estimator(ValueEstimators.GAE, gamma=rl.gamma, lmbda=rl.gae_lambda)
        return loss_module, loss_module.value_estimator
