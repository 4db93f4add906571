"""IQN, implicit quantile networks: learns the distribution of returns and acts by its mean.

Shapes: N envs, B batch, A actions, F features, Q quantiles, C cosines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.config.base import Positive, PositiveFloat
from ludus.config.registry import register_trainer
from ludus.data.replay.ring import Batch
from ludus.data.replay.row_layout import RowLayout
from ludus.envs.spaces import EnvSpec
from ludus.losses.iqn import quantile_huber_loss
from ludus.nn.actor_critic import head
from ludus.nn.export.numpy_net import Linear
from ludus.nn.learner import Learner
from ludus.nn.target import Target
from ludus.rl.acting import ExportedPolicy, ValueActing, acting_net, discrete_actions
from ludus.rl.agent import Action, Agent
from ludus.rl.config import RLConfig
from ludus.rl.networks._body import features_of, make_body
from ludus.rl.off_policy import OffPolicyConfig, ValueConfig, example_batch
from ludus.rl.step_trainer import StepRLTrainer
from ludus.seeds import derive, forked


class IqnConfig(ValueConfig, OffPolicyConfig, RLConfig):
    """The complete config of an IQN run."""

    quantiles: Positive
    """Number of quantile samples of each prediction in the loss (N in the paper)."""
    target_quantiles: Positive
    """Number of quantile samples of each target (N' in the paper)."""
    acting_quantiles: Positive
    """Number of evenly spaced quantiles whose mean is an action's Q-value when acting."""
    cosines: Positive
    """Number of cosines in the embedding of a quantile."""
    kappa: PositiveFloat
    """Threshold of the quantile Huber loss, which is linear beyond it."""


class QuantileNetwork(nn.Module):
    """A body, a cosine embedding of quantiles that scales its features, and a head per action."""

    def __init__(self, body: nn.Module, num_actions: int, cosines: int) -> None:
        super().__init__()
        self.body, num_features = body, features_of(body)
        self.embed = nn.Linear(cosines, num_features)
        # Scales start around 1: the network first learns what does not depend on the quantile.
        nn.init.ones_(self.embed.bias)
        self.value = head(num_features, num_actions, gain=None)
        self.num_cosines = cosines

    def forward(self, obs: Tensor, fractions: Tensor) -> Tensor:
        """Return the quantile of each action's return at each fraction, (B, Q, A).

        Fractions (B, Q) differ by observation. If all share the same, (Q,), the mean over them is
        returned, (B, A): the layers after the embedding are linear, so its mean suffices.
        """
        features_BF = self.body(obs)
        scales = torch.relu(self.embed(cosines_of(fractions, self.num_cosines)))
        if fractions.ndim == 1:
            means: Tensor = self.value(features_BF * scales.mean(0))
            return means
        found: Tensor = self.value(features_BF.unsqueeze(1) * scales)
        return found


def cosines_of(fractions: Tensor, count: int) -> Tensor:
    """Return cos(pi * i * fraction) for i from 1 to count, in a new last axis."""
    multiples = torch.arange(1, count + 1, device=fractions.device, dtype=fractions.dtype)
    return torch.cos(math.pi * fractions.unsqueeze(-1) * multiples)


class Iqn(Agent):
    """Implicit quantile networks: learns the distribution of returns."""

    config: IqnConfig
    metric_names = ("loss", "grad_norm", "q_mean")
    worth_compiling = 40_000

    def __init__(self, config: IqnConfig, spec: EnvSpec, device: torch.device) -> None:
        super().__init__(config, spec, device)
        actions = discrete_actions(config.kind, spec)
        mask_width = actions.n if spec.has_masks else 0
        self.layout = RowLayout(spec.obs_shape, spec.obs_dtype, 1, mask_width)
        with forked(derive(config.seed, "model")):
            body = make_body(config.network, spec.obs_shape, spec.obs_dtype)
            network = QuantileNetwork(body, actions.n, config.cosines)
            self.learner = self.make_learner(network, "q")
        self.target = self.make_target(self.learner, config.target)
        self._network = network
        self._features = acting_net([network.body], self.normaliser, device, spec.obs_shape)
        self.acting = ValueActing(config, actions, self.values)
        count = config.acting_quantiles
        self._middles_Q = (torch.arange(count, device=device) + 0.5) / count
        self._scale_F: NDArray[Any] | None = None
        # Sampled on the CPU so that every device learns from the same quantiles.
        shape = (config.batch_size, config.quantiles + config.target_quantiles)
        self._drawn = torch.empty(shape)

    def learned(self) -> Mapping[str, Learner | Target]:
        """Return the network and its target."""
        return {"q": self.learner, "target": self.target}

    def values(self, obs_ND: Action) -> Action:
        """Return the Q-value of each action: the mean of its return distribution."""
        network = self._network
        if self._scale_F is None:
            # The layers after the embedding are linear, so the mean over quantiles can be taken here.
            self._scale_F = self.feature_scale()
            self._weight_FA = network.value.weight.detach().cpu().numpy().T.copy()
            self._bias_A = network.value.bias.detach().cpu().numpy().copy()
        out: Action = (self._features(obs_ND) * self._scale_F) @ self._weight_FA + self._bias_A
        return out

    def feature_scale(self) -> NDArray[Any]:
        """Return the mean scale of each feature over the quantiles, (F,)."""
        network = self._network
        with torch.inference_mode():
            cosines = cosines_of(self._middles_Q, self.config.cosines)
            scale: NDArray[Any] = torch.relu(network.embed(cosines)).mean(0).cpu().numpy()
        return scale

    def exported_policy(self) -> ExportedPolicy:
        """Return the network of mean quantiles, whose argmax is the action."""
        network = self._network
        # Scaling the inputs of a layer is the same as scaling its weights.
        weight = network.value.weight.detach().cpu().numpy() * self.feature_scale()
        value = Linear(weight.astype(np.float32), network.value.bias.detach().cpu().numpy())
        return ExportedPolicy("greedy", network.body, {"q": value})

    def example_inputs(self) -> tuple[Tensor | None, ...]:
        """Return zeros in the shapes of rows, images, importance weights, fractions and numbers."""
        batch = example_batch(self.config, self.layout, self.device)
        drawn = torch.zeros_like(self._drawn, device=self.device)
        return *batch, drawn, drawn.new_zeros(1)

    def inputs(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Return rows, images, importance weights and newly sampled fractions."""
        if self._drawn.shape[0] != len(batch.rows):
            self._drawn = torch.empty(len(batch.rows), self._drawn.shape[1])
        self.generator.random(out=self._drawn.numpy(), dtype=np.float32)
        self._scale_F = None  # the update changes the embedding
        return batch.rows, batch.images, batch.weights, self._drawn

    def update(
        self,
        rows: Tensor,
        images: Tensor | None,
        weights: Tensor | None,
        fractions: Tensor,
        numbers: Tensor,
    ) -> Tensor:
        batch = self.layout.split(rows, images)
        obs, next_obs, rewards_B = self.normalised(batch)
        count = self.config.quantiles
        own_BQ, theirs_BQ = fractions[:, :count], fractions[:, count:]
        index_B11 = batch.actions[:, 0].long().view(-1, 1, 1)
        with torch.no_grad():
            choosing = self.learner if self.config.double else self.target
            q_BA = choosing(next_obs, self._middles_Q).float()
            if batch.next_masks is not None:
                q_BA = q_BA.masked_fill(batch.next_masks == 0, -torch.inf)
            best_B11 = q_BA.argmax(1).view(-1, 1, 1)
            next_BQ = _of_action(self.target(next_obs, theirs_BQ).float(), best_B11)
            targets_BQ = rewards_B.unsqueeze(1) + batch.discounts.unsqueeze(1) * next_BQ

        def loss_fn(network: Callable[..., Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            found_BQ = _of_action(network(obs, own_BQ).float(), index_B11)
            loss, sizes_B = quantile_huber_loss(
                found_BQ, own_BQ, targets_BQ, weights, kappa=self.config.kappa
            )
            return loss, (sizes_B, found_BQ.detach().mean())

        loss, norm, (sizes_B, q_mean) = self.learner.step(loss_fn, numbers[0])
        self.count(loss, norm, q_mean)
        return sizes_B

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load the weights of a trained policy."""
        super().load_weights(weights)
        self._scale_F = None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        super().load_state_dict(state)
        self._scale_F = None


def _of_action(values_BQA: Tensor, index_B11: Tensor) -> Tensor:
    """Return the quantiles of the chosen action of each row, (B, Q)."""
    index_BQ1 = index_B11.expand(-1, values_BQA.shape[1], 1)
    return values_BQA.gather(2, index_BQ1).squeeze(2)


@register_trainer("iqn")
class IqnTrainer(StepRLTrainer):
    """Trains an IQN agent."""

    Config = IqnConfig
    Agent = Iqn
