"""DQN: deep Q-learning, which learns the value of every action and takes the best one.

Shapes: N envs, B batch, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ludus.config.base import PositiveFloat
from ludus.config.registry import register_trainer
from ludus.data.replay.ring import Batch
from ludus.data.replay.row_layout import RowLayout
from ludus.envs.spaces import EnvSpec
from ludus.losses.dqn import dueling_q, td_errors, td_loss, td_targets
from ludus.nn.actor_critic import head
from ludus.nn.learner import Learner
from ludus.nn.target import Target
from ludus.rl.acting import ExportedPolicy, ValueActing, acting_net, discrete_actions
from ludus.rl.agent import Agent
from ludus.rl.config import RLConfig
from ludus.rl.networks._body import features_of, make_body
from ludus.rl.off_policy import OffPolicyConfig, ValueConfig, example_batch
from ludus.rl.step_trainer import StepRLTrainer
from ludus.seeds import derive, forked


class DqnConfig(ValueConfig, OffPolicyConfig, RLConfig):
    """The complete config of a DQN run."""

    dueling: bool
    """Dueling heads: separate state value and action advantages."""
    huber: PositiveFloat | None
    """Delta of the Huber loss, which is linear beyond it; null is the squared error."""


class QNetwork(nn.Module):
    """A body with a Q-value head for each action."""

    def __init__(self, body: nn.Module, num_actions: int, *, dueling: bool) -> None:
        super().__init__()
        self.body, num_features = body, features_of(body)
        self.advantage = head(num_features, num_actions, gain=None)
        self.value = head(num_features, 1, gain=None) if dueling else None

    def forward(self, obs: Tensor) -> Tensor:
        """Return the Q-values, one row per observation."""
        features = self.body(obs)
        advantages: Tensor = self.advantage(features)
        if self.value is None:
            return advantages
        return dueling_q(self.value(features), advantages)


class Dqn(Agent):
    """Deep Q-learning: plain or double, dueling or not."""

    config: DqnConfig
    metric_names = ("loss", "grad_norm", "q_mean")

    def __init__(self, config: DqnConfig, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(config, spec, device)
        actions = discrete_actions(config.kind, spec)
        mask_width = actions.n if spec.has_masks else 0
        self.layout = RowLayout(spec.obs_shape, spec.obs_dtype, 1, mask_width)
        with forked(derive(config.seed, "model")):
            body = make_body(config.network, spec.obs_shape, spec.obs_dtype)
            network = QNetwork(body, actions.n, dueling=config.dueling)
            self.learner = self.make_learner(network, "q")
        self.target = self.make_target(self.learner, config.target)
        self._network = network
        # The state value is the same for all actions, so it changes neither the argmax nor the softmax.
        layers = [network.body, network.advantage]
        self.values = acting_net(layers, self.normaliser, device, spec.obs_shape)
        self.acting = ValueActing(config, actions, self.values)

    def learned(self) -> Mapping[str, Learner | Target]:
        """Return the network and its target."""
        return {"q": self.learner, "target": self.target}

    def exported_policy(self) -> ExportedPolicy:
        """Return the Q-network, whose argmax is the action."""
        network = self._network
        if network.value is None:
            return ExportedPolicy("greedy", network.body, {"q": network.advantage})
        heads = {"value": network.value, "advantage": network.advantage}
        return ExportedPolicy("greedy", network.body, heads)

    def example_inputs(self) -> tuple[Tensor | None, ...]:
        """Return zeros in the shapes of rows, images, importance weights and numbers."""
        rows, images, weights = example_batch(self.config, self.layout, self.device)
        return rows, images, weights, rows.new_zeros(1)

    def inputs(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Return rows, images and importance weights."""
        return batch.rows, batch.images, batch.weights

    def update(
        self, rows: Tensor, images: Tensor | None, weights: Tensor | None, numbers: Tensor
    ) -> Tensor:
        batch = self.layout.split(rows, images)
        obs, next_obs, rewards_B = self.normalised(batch)
        actions_B = batch.actions[:, 0].long()
        with torch.no_grad():
            next_q_BA = self.target(next_obs).float()
            choosing_BA = self.learner(next_obs).float() if self.config.double else next_q_BA
            allowed_BA = None if batch.next_masks is None else batch.next_masks > 0
            targets_B = td_targets(rewards_B, batch.discounts, next_q_BA, choosing_BA, allowed_BA)

        def loss_fn(network: Callable[..., Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            q_BA = network(obs).float()
            errors_B = td_errors(q_BA, actions_B, targets_B)
            loss = td_loss(errors_B, weights, huber=self.config.huber)
            return loss, (errors_B.detach(), q_BA.detach().mean())

        loss, norm, (errors_B, q_mean) = self.learner.step(loss_fn, numbers[0])
        self.count(loss, norm, q_mean)
        return errors_B


@register_trainer("dqn")
class DqnTrainer(StepRLTrainer):
    """Trains a DQN agent."""

    Config = DqnConfig
    Agent = Dqn
