"""The rows of PPO's updates: one for each step of a rollout, with its value and GAE advantage.

Shapes: T steps, N envs, B batch, A outputs of the policy, W row width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ludus.data.replay.rollout import RolloutBuffer
from ludus.envs.spaces import EnvSpec
from ludus.losses.advantage import generalised_advantage
from ludus.losses.distributions import masked_logits
from ludus.nn.distributions import ActionDistribution
from ludus.nn.learner import Learner
from ludus.rl.acting import Net
from ludus.rl.config import OnPolicyConfig
from ludus.rl.sampling.normalise import Moments, Normaliser

_PADDED = 64


class Steps(NamedTuple):
    """Steps of a rollout as columns of B rows."""

    obs: Tensor
    actions: Tensor
    log_probs: Tensor
    """Log-probabilities of the actions under the policy that took them."""
    advantages: Tensor
    returns: Tensor
    values: Tensor
    """Values estimated by the network that acted."""
    masks: Tensor | None
    """Action masks; None where the env has none."""


class RolloutRows:
    """Packs steps into one float32 table, so that a minibatch is one gather, and unpacks it.

    Images stay bytes outside the rows, unless observations are normalised.
    """

    def __init__(self, spec: EnvSpec, action_width: int, *, is_normalised: bool) -> None:
        self.has_images = spec.obs_dtype == np.uint8 and not is_normalised
        self._obs_shape = spec.obs_shape
        self._has_masks = spec.has_masks
        obs_width = 0 if self.has_images else math.prod(spec.obs_shape)
        mask_width = spec.action.mask_width if spec.has_masks else 0
        ends = np.cumsum((0, obs_width, action_width, 1, 1, 1, 1, mask_width)).tolist()
        self._columns = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.width = int(ends[-1])

    def pack(self, steps: Steps) -> Tensor:
        """Return one row per step, (B, W)."""
        numbers = (steps.log_probs, steps.advantages, steps.returns, steps.values)
        columns = [steps.actions, *[column.reshape(-1, 1) for column in numbers]]
        if not self.has_images:
            columns.insert(0, steps.obs)
        return torch.cat([*columns, *([] if steps.masks is None else [steps.masks.float()])], 1)

    def split(self, rows: Tensor, images: Tensor | None) -> Steps:
        """Return the columns of packed rows."""
        pieces = [rows[:, columns] for columns in self._columns]
        obs = pieces[0].reshape(-1, *self._obs_shape) if images is None else images
        masks = pieces[6] > 0 if self._has_masks else None
        log_probs, advantages, returns, values = (piece[:, 0] for piece in pieces[2:6])
        return Steps(obs, pieces[1], log_probs, advantages, returns, values, masks)


@dataclass(frozen=True)
class RolloutEstimator:
    """Turns a full rollout into the rows for its updates."""

    config: OnPolicyConfig
    learner: Learner
    distribution: ActionDistribution
    rows: RolloutRows
    log_std: Tensor | None
    outputs: Net
    """The forward pass of acting, on normalised observations."""
    values: Net
    """The same for values."""
    device: torch.device

    def __call__(
        self, rollout: RolloutBuffer, moments: Sequence[Moments], normaliser: Normaliser | None
    ) -> Tensor:
        """Return one packed row for each step.

        `moments` are the normaliser's at each step and after the last; empty without a normaliser.
        """
        steps, envs = rollout.rewards.shape
        obs, next_obs = rollout.obs, rollout.next_obs
        if normaliser is not None:
            obs = normaliser.seen(obs, moments[:-1])
            next_obs = normaliser.seen(next_obs, moments[1:])
        actions = rollout.actions.view(steps * envs, -1).to(self.device)
        masks = rollout.masks
        if masks is not None:
            masks = masks.view(steps * envs, -1).to(self.device)
        ends_TN = rollout.terminated | rollout.truncated
        # The value after a step is that of the next observation, unless the episode ended there.
        asked_TN = ends_TN.clone()
        asked_TN[-1] = True
        with torch.no_grad():
            outputs, values = self.outputs_of(obs.flatten(0, 1))
            values_TN = values.view(steps, envs)
            outputs = masked_logits(outputs, masks)
            log_probs = self.distribution.log_probs(outputs, self.log_std, actions)
            after_TN = values_TN.roll(-1, 0)
            after_TN[asked_TN.to(self.device)] = self.values_of(next_obs[asked_TN])
            rewards_TN = rollout.rewards.to(self.device)
            if normaliser is not None:
                rewards_TN = normaliser.rewards(rewards_TN)
            advantages_TN = generalised_advantage(
                rewards_TN, values_TN, after_TN,
                rollout.terminated.to(self.device), ends_TN.to(self.device),
                gamma=self.config.gamma, lam=self.config.gae_lambda,
            )  # fmt: skip
        seen = obs if self.rows.has_images else obs.view(steps * envs, -1).to(self.device)
        numbers = (log_probs, advantages_TN, advantages_TN + values_TN, values_TN)
        return self.rows.pack(Steps(seen, actions, *numbers, masks))

    def outputs_of(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return policy outputs and values, computed as in acting."""
        if self.config.precision != "float32":
            # The reference for the ratio must have the same precision as the updates.
            outputs, values, _ = self.learner(obs.to(self.device))
            return outputs.float(), values.float()
        outputs_BA = torch.from_numpy(self.outputs(obs.numpy()).copy()).to(self.device)
        return outputs_BA, self.values_of(obs)

    def values_of(self, obs: Tensor) -> Tensor:
        """Return the value of each observation, (B,)."""
        if self.config.precision != "float32":
            return self.learner(obs.to(self.device))[1].float()  # type: ignore[no-any-return]
        # Padded, so that only a few sizes occur: memory is reserved for each.
        padded = functional.pad(obs, (0, 0) * (obs.ndim - 1) + (0, -len(obs) % _PADDED))
        values = self.values(padded.numpy())[: len(obs), 0].copy()
        return torch.from_numpy(values).to(self.device)
