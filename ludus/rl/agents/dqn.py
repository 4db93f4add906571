"""DQN: learn the value of every action, act by the best one.

Shapes: N envs, B batch, A actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.config.base import PositiveFloat
from ludus.data.replay.ring import Batch
from ludus.data.replay.row_layout import RowLayout
from ludus.envs.spaces import EnvSpec
from ludus.losses.dqn import dueling_q, td_errors, td_loss, td_targets
from ludus.nn.learner import Learner
from ludus.nn.schedules import Schedule, too_long
from ludus.nn.target import Target
from ludus.rl.acting import acting_net, best_of, draw_categorical, masked
from ludus.rl.action_kinds import discrete_actions
from ludus.rl.agent import Action, Agent, follow_if_due
from ludus.rl.exported import ExportedPolicy
from ludus.rl.network_config import head, make_body
from ludus.rl.off_policy_config import ExplorationConfig, OffPolicyConfig, TargetConfig
from ludus.seeds import derive, forked


class ValueConfig(OffPolicyConfig):
    """What agents that learn the value of every action share."""

    target: TargetConfig
    """How the target network follows."""
    exploration: ExplorationConfig
    """How other actions than the best are tried while training."""
    double: bool
    """Choose the next action by the network that learns and value it by the target's."""

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
        yield from super().problems()
        if getattr(self, self.schedule) is not None:
            path = "exploration.schedule"
            yield from too_long(self.exploration.schedule, path, self.run_env_steps, "env steps")


class DqnConfig(ValueConfig):
    """Everything that decides a DQN run."""

    dueling: bool
    """Learn a state's value and each action's advantage apart."""
    huber: PositiveFloat | None
    """From which size on an error counts in proportion rather than squared; null always squares."""


class QNetwork(nn.Module):
    """A body, and a value for each action on top of it."""

    def __init__(
        self, body: nn.Module, num_features: int, num_actions: int, *, dueling: bool
    ) -> None:
        super().__init__()
        self.body = body
        self.advantage = head(num_features, num_actions, gain=None)
        self.value = head(num_features, 1, gain=None) if dueling else None

    def forward(self, obs: Tensor) -> Tensor:
        """Return the value of each action, one row an observation."""
        features = self.body(obs)
        advantages: Tensor = self.advantage(features)
        if self.value is None:
            return advantages
        return dueling_q(self.value(features), advantages)


class ValueAgent(Agent):
    """Acts by values of actions, and explores by chance; what DQN and IQN share."""

    config: ValueConfig

    def __init__(self, config: ValueConfig, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(config, spec, device)
        self.actions = discrete_actions(config.kind, spec)
        mask_width = self.actions.n if spec.has_masks else 0
        self.layout = RowLayout(spec.obs_shape, spec.obs_dtype, 1, mask_width)
        exploration = config.exploration
        self.chance = Schedule(
            exploration.schedule, initial=exploration.initial, run_steps=config.run_env_steps
        )
        with forked(derive(config.seed, "model")):
            self.learner = Learner(
                self._make_network().to(device),
                config.optimizer,
                max_grad_norm=config.max_grad_norm,
                precision=config.precision,
            )
        self.target = Target(self.learner)

    def _make_network(self) -> nn.Module:
        raise NotImplementedError

    def values(self, obs_ND: Action) -> Action:
        """Return numbers that order the actions, one row an observation."""
        raise NotImplementedError

    def learned(self) -> Mapping[str, Learner | Target]:
        """Return the network and its target."""
        return {"q": self.learner, "target": self.target}

    def policy_networks(self) -> tuple[str, ...]:
        """Return the network that acts."""
        return ("q",)

    def act(self, obs_ND: Action, masks: Any, num_env_steps: int) -> Action:
        """Return an action for each env: at random before learning starts, then by exploration."""
        count = len(obs_ND)
        if not self.is_training:
            return best_of(self.values(obs_ND), masks)
        if num_env_steps < self.config.learning_starts:
            return self._random(count, masks)
        chance = self.chance(num_env_steps)
        if self.config.exploration.kind == "softmax":
            logits = self.values(obs_ND) / max(chance, 1e-8)
            return draw_categorical(masked(logits, masks), self.generator)
        if count == 1:
            # The common case of one env pays for a network only where it is asked.
            if self.generator.random() < chance:
                return self._random(1, masks)
            return best_of(self.values(obs_ND), masks)
        best = best_of(self.values(obs_ND), masks)
        is_random = self.generator.random(count) < chance
        if is_random.any():
            best[is_random] = self._random(count, masks)[is_random]
        return best

    def _random(self, count: int, masks: NDArray[np.bool_] | None) -> Action:
        if masks is None:
            return self.generator.integers(0, self.actions.n, count)
        return best_of(self.generator.random(masks.shape, dtype=np.float32), masks)

    def act_greedy(self, obs_ND: Action, masks: Any) -> Action:
        """Return the best action for each env."""
        return self.to_env(best_of(self.values(obs_ND), masks))

    def to_env(self, actions: Action) -> Action:
        """Return the actions as the env numbers them."""
        return actions + self.actions.start if self.actions.start else actions

    def example_inputs(self) -> tuple[Tensor | None, ...]:
        """Return rows, images, weights and numbers of zeros."""
        config, images = self.config, None
        rows = torch.zeros(config.batch_size, self.layout.width, device=self.device)
        if self.layout.has_images:
            images = rows.new_zeros(len(rows), self.layout.image_width, dtype=torch.uint8)
        weights = None if config.replay.prioritised is None else rows.new_zeros(len(rows))
        return rows, images, weights, rows.new_zeros(1)

    def learn(self, batch: Batch, num_opts: int, learning_rate: float) -> NDArray[Any] | None:
        """Learn from a batch; return how far off each transition was, where priorities are kept.

        The next call overwrites what is returned.
        """
        errors = self._learn(batch.rows, batch.images, batch.weights, numbers=(learning_rate,))
        follow_if_due(self.target, self.config.target, num_opts)
        return None if batch.weights is None else errors.detach().cpu().numpy()

    def info(self, num_env_steps: int) -> dict[str, float]:
        """Return how much is explored now."""
        return {"rollout/exploration_rate": self.chance(num_env_steps)}


class Dqn(ValueAgent):
    """Deep Q-learning: plain or double, dueling or not."""

    config: DqnConfig
    metric_names = ("loss", "grad_norm", "q_mean")

    def __init__(self, config: DqnConfig, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(config, spec, device)
        network: Any = self.learner.module
        # A state's value is the same for all its actions, so it changes neither the best one nor the
        # odds between them.
        layers = [network.body, network.advantage]
        self.values = acting_net(layers, self.normaliser, device, spec.obs_shape)  # type: ignore[method-assign, assignment]

    def _make_network(self) -> nn.Module:
        body = make_body(self.config.network, self.spec.obs_shape, self.spec.obs_dtype)
        features: int = body.num_features  # type: ignore[assignment]
        return QNetwork(body, features, self.actions.n, dueling=self.config.dueling)

    def exported_policy(self) -> ExportedPolicy:
        """Return the network of Q-values, of which the greatest is chosen."""
        network: Any = self.learner.module
        if network.value is None:
            return ExportedPolicy("greedy", network.body, {"q": network.advantage})
        heads = {"value": network.value, "advantage": network.advantage}
        return ExportedPolicy("greedy", network.body, heads)

    def _update(
        self, rows: Tensor, images: Tensor | None, weights: Tensor | None, numbers: Any
    ) -> Tensor:
        batch = self.layout.split(rows, images)
        obs, next_obs, rewards_B = self.normalised(batch)
        actions_B = batch.actions[:, 0].long()
        with torch.no_grad():
            next_q_BA = self.target(next_obs).float()
            choosing_BA = self.learner(next_obs).float() if self.config.double else next_q_BA
            allowed_BA = None if batch.next_masks is None else batch.next_masks > 0
            targets_B = td_targets(rewards_B, batch.discounts, next_q_BA, choosing_BA, allowed_BA)

        def loss_of(network: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            q_BA = network(obs).float()
            errors_B = td_errors(q_BA, actions_B, targets_B)
            loss = td_loss(errors_B, weights, huber=self.config.huber)
            return loss, (errors_B.detach(), q_BA.detach().mean())

        loss, norm, (errors_B, q_mean) = self.learner.improve(loss_of, numbers[0])
        self.count(loss, norm, q_mean)
        return errors_B
