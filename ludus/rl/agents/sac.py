"""SAC: soft actor-critic, a stochastic policy that maximises return plus entropy.

Shapes: N envs, B batch, K numbers of an action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.config.registry import register_trainer
from ludus.core.errors import ConfigError
from ludus.data.replay.ring import Batch
from ludus.data.replay.row_layout import RowLayout
from ludus.envs.spaces import EnvSpec
from ludus.losses.sac import (
    actor_loss,
    critic_loss,
    critic_targets,
    temperature_loss,
)
from ludus.nn.actor_critic import head
from ludus.nn.distributions import Masks, SquashedGaussian
from ludus.nn.export.numpy_net import Linear
from ludus.nn.learner import Learner
from ludus.nn.target import Target
from ludus.rl.acting import ExportedPolicy, acting_net, box_actions
from ludus.rl.agent import Action, Agent
from ludus.rl.config import RLConfig
from ludus.rl.networks._body import features_of, make_body
from ludus.rl.off_policy import OffPolicyConfig, TargetConfig, example_batch
from ludus.rl.step_trainer import StepRLTrainer
from ludus.seeds import derive, forked


class TemperatureConfig(StrictConfig):
    """The temperature alpha: the weight of the entropy relative to the return."""

    initial: PositiveFloat
    """The temperature at the beginning."""
    learned: bool
    """Learn alpha so that the policy's entropy approaches target_entropy; false keeps it constant."""
    target_entropy: float | None
    """The target entropy; null is minus the dimension of the action."""

    def problems(self) -> Iterator[str]:
        """Yield a message if there is a target entropy but the temperature is constant."""
        if not self.learned and self.target_entropy is not None:
            yield (
                f"'target_entropy' is {self.target_entropy:g}, which means nothing where 'learned' is"
                " false; set it to null"
            )


class SacConfig(OffPolicyConfig, RLConfig):
    """The complete config of a SAC run."""

    target: TargetConfig
    """How the target critics are updated."""
    temperature: TemperatureConfig
    """The temperature alpha: the weight of the entropy relative to the return."""


class Actor(nn.Module):
    """A body with heads for the mean and log_std of each action component."""

    def __init__(self, body: nn.Module, num_outputs: int) -> None:
        super().__init__()
        self.body = body
        self.out = head(features_of(body), num_outputs, gain=None)

    def forward(self, obs: Tensor) -> Tensor:
        """Return means and log_std, concatenated, (B, 2 K)."""
        found: Tensor = self.out(self.body(obs))
        return found


class Critics(nn.Module):
    """Twin Q-networks of observation and action, trained separately."""

    def __init__(self, config: StrictConfig, inputs: int) -> None:
        super().__init__()
        self.bodies = nn.ModuleList([make_body(config, (inputs,)) for _ in range(2)])
        self.outs = nn.ModuleList([head(features_of(body), 1, gain=None) for body in self.bodies])

    def forward(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return both Q-values, (B,) each."""
        inputs = torch.cat([obs.flatten(1), actions], 1)
        first, second = (
            out(body(inputs)).squeeze(1) for body, out in zip(self.bodies, self.outs, strict=True)
        )
        return first, second


class Temperature(nn.Module):
    """log(alpha) as a parameter."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))

    def forward(self) -> Tensor:
        """Return log(alpha)."""
        return self.log[0]


class Sac(Agent):
    """Soft actor-critic with twin critics and a learned or constant temperature."""

    config: SacConfig
    metric_names = ("loss", "grad_norm", "actor_loss", "ent_coef", "entropy")
    worth_compiling = 16_000

    def __init__(self, config: SacConfig, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(config, spec, device)
        bounds = box_actions(config.kind, spec)
        if spec.obs_dtype == np.uint8:
            raise ConfigError(
                f"'sac' works on rows of numbers, but {spec.name} shows images; use ppo for those"
            )
        self.distribution = SquashedGaussian(bounds.low, bounds.high)
        width = self.distribution.width
        self.layout = RowLayout(spec.obs_shape, spec.obs_dtype, width)
        aimed = config.temperature.target_entropy
        self._target_entropy = -float(width) if aimed is None else aimed
        with forked(derive(config.seed, "model")):
            body = make_body(config.network, spec.obs_shape)
            actor = Actor(body, self.distribution.num_outputs)
            critics = Critics(config.network, math.prod(spec.obs_shape) + width)
        self.actor = self.make_learner(actor, "actor")
        self.critics = self.make_learner(critics, "critics")
        temperature = Temperature(config.temperature.initial).to(device)
        # Weight decay would pull the temperature towards 1.
        self.temperature = Learner(
            temperature,
            config.optimizer,
            max_grad_norm=None,
            highest_rate=config.highest_rate,
            undecayed=("log",),
            groups=self.start_groups(temperature, "temperature"),
        )
        self.target = self.make_target(self.critics, config.target)
        self._network = actor
        self._acting = acting_net([actor.body, actor.out], self.normaliser, device, spec.obs_shape)
        self._noise = torch.empty(2, config.batch_size, width)

    def learned(self) -> Mapping[str, Learner | Target]:
        """Return the networks, the temperature and the target critics."""
        return {
            "actor": self.actor,
            "critics": self.critics,
            "temperature": self.temperature,
            "target": self.target,
        }

    def act(self, obs_ND: Action, masks: Masks, num_env_steps: int) -> Action:
        """Return a sampled action in [-1, 1]; uniform before learning starts."""
        if not self.is_training:
            return self.distribution.best(self._acting(obs_ND))
        if num_env_steps < self.config.learning_starts:
            shape = (len(obs_ND), self.distribution.width)
            return self.generator.uniform(-1.0, 1.0, shape).astype(np.float32)
        return self.distribution.sample(self._acting(obs_ND), self.generator)

    def act_greedy(self, obs_ND: Action, masks: Masks) -> Action:
        """Return tanh of the policy's mean for each env."""
        return self.to_env(self.distribution.best(self._acting(obs_ND)))

    def to_env(self, actions: Action) -> Action:
        """Return actions in [-1, 1] rescaled to the env's bounds."""
        return self.distribution.to_env(actions)

    def exported_policy(self) -> ExportedPolicy:
        """Return the network of the mean action, which is squashed by tanh."""
        network = self._network
        # The second half of its outputs is log_std.
        count = self.distribution.width
        weight, bias = (p.detach().cpu().numpy()[:count] for p in network.out.parameters())
        return ExportedPolicy("squashed", network.body, {"mean": Linear(weight, bias)})

    def example_inputs(self) -> tuple[Tensor | None, ...]:
        """Return zeros in the shapes of rows, importance weights, noise and numbers."""
        rows, _, weights = example_batch(self.config, self.layout, self.device)
        return rows, weights, torch.zeros_like(self._noise, device=self.device), rows.new_zeros(1)

    def inputs(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Return rows, importance weights and newly sampled noise."""
        if self._noise.shape[1] != len(batch.rows):
            self._noise = torch.empty(2, len(batch.rows), self.distribution.width)
        self.generator.standard_normal(out=self._noise.numpy(), dtype=np.float32)
        return batch.rows, batch.weights, self._noise

    def update(
        self, rows: Tensor, weights: Tensor | None, noise: Tensor, numbers: Tensor
    ) -> Tensor:
        batch = self.layout.split(rows)
        obs, next_obs, rewards_B = self.normalised(batch)
        alpha = self.temperature().detach().exp()
        with torch.no_grad():
            next_actions, next_logs_B = self.distribution.draw(self.actor(next_obs), noise[0])
            next_q1_B, next_q2_B = (q.float() for q in self.target(next_obs, next_actions))
            targets_B = critic_targets(
                rewards_B, batch.discounts, next_q1_B, next_q2_B, next_logs_B, alpha
            )

        def critic_loss_of(network: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
            q1_B, q2_B = (q.float() for q in network(obs, batch.actions))
            errors_B = (0.5 * (q1_B + q2_B) - targets_B).detach()
            return critic_loss(q1_B, q2_B, targets_B, weights), errors_B

        loss, norm, errors_B = self.critics.step(critic_loss_of, numbers[0])

        def actor_loss_of(network: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
            actions, logs_B = self.distribution.draw(network(obs), noise[1])
            q1_B, q2_B = (q.float() for q in self.critics.frozen(obs, actions))
            return actor_loss(q1_B, q2_B, logs_B, alpha), logs_B.detach()

        gain, actor_norm, logs_B = self.actor.step(actor_loss_of, numbers[0])
        if self.config.temperature.learned:

            def temperature_loss_of(log: Callable[[], Tensor]) -> tuple[Tensor, tuple[()]]:
                aimed = self._target_entropy
                return temperature_loss(log(), logs_B, target_entropy=aimed), ()

            self.temperature.step(temperature_loss_of, numbers[0])
        self.count(loss, torch.maximum(norm, actor_norm), gain, alpha, -logs_B.mean())
        return errors_B


@register_trainer("sac")
class SacTrainer(StepRLTrainer):
    """Trains a SAC agent."""

    Config = SacConfig
    Agent = Sac
