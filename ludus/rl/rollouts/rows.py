"""The rows of PPO's updates: one for each step of a rollout, with its advantage.

Shapes: T steps, N envs, B batch, W row width.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ludus.envs.spaces import EnvSpec


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
