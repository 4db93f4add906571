"""The columns of a packed float32 row of a transition.

    float32 observations   row: obs | action | reward | discount | next_obs | next_mask
    uint8 observations     row: action | reward | discount | next_mask      images: obs | next_obs

Shapes: B batch, W width of a row, D numbers of an observation, k numbers of an action, A actions.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludus.core.errors import ConfigError


class Transitions(NamedTuple):
    """The named columns of a batch of rows; each is a view of it."""

    obs: Any
    """(B, *obs_shape), float32 or uint8."""
    actions: Any
    """(B, k)"""
    rewards: Any
    """(B,), summed over n steps if the step processor computes n-step returns."""
    discounts: Any
    """(B,) the factor of the value of next_obs: gamma**n, and 0 if the episode terminated."""
    next_obs: Any
    """(B, *obs_shape)"""
    next_masks: Any
    """(B, A) of 1.0 for an action allowed at next_obs, else 0.0; None without masks."""


class RowLayout:
    """The columns of a row, as slices, and the split of a batch of rows into them."""

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any] | type,
        action_width: int,
        mask_width: int = 0,
    ) -> None:
        self.obs_shape = tuple(int(side) for side in obs_shape)
        self.obs_dtype = np.dtype(obs_dtype)
        if self.obs_dtype not in (np.dtype(np.float32), np.dtype(np.uint8)):
            raise ConfigError(
                f"observations are {self.obs_dtype}; a buffer keeps float32 or uint8, so convert them"
            )
        self.action_width = action_width
        self.mask_width = mask_width
        self.obs_width = math.prod(self.obs_shape)
        self.has_images = self.obs_dtype == np.uint8
        in_row = 0 if self.has_images else self.obs_width
        ends = [0]
        for width in (in_row, action_width, 1, 1, in_row, mask_width):
            ends.append(ends[-1] + width)
        slices = [slice(start, end) for start, end in itertools.pairwise(ends)]
        self.obs, self.action, self.reward, self.discount, self.next_obs, self.next_mask = slices
        self._widths = [piece.stop - piece.start for piece in slices]
        self._is_flat = len(self.obs_shape) == 1 and not self.has_images
        self.width = ends[-1]
        """The number of float32 columns of a row."""
        self.image_width = 2 * self.obs_width if self.has_images else 0
        """The number of bytes of a row of the uint8 ring; 0 if observations are float32."""

    def split(
        self, rows_BW: Tensor | NDArray[Any], images: Tensor | NDArray[Any] | None = None
    ) -> Transitions:
        """Return the columns of a batch as views of it: plain slicing, of tensors or NumPy arrays.

        `images` is the batch of the uint8 ring, if observations are uint8.
        """
        if self._is_flat and isinstance(rows_BW, Tensor):
            # The common case in one call: each single slice would cost as much.
            obs, actions, rewards, discounts, next_obs, masks = rows_BW.split(self._widths, 1)
            rewards, discounts = rewards.squeeze(1), discounts.squeeze(1)
            return Transitions(
                obs, actions, rewards, discounts, next_obs, masks if self.mask_width else None
            )
        count = rows_BW.shape[0]
        if self.has_images:
            assert images is not None
            obs, next_obs = images[:, : self.obs_width], images[:, self.obs_width :]
        else:
            obs, next_obs = rows_BW[:, self.obs], rows_BW[:, self.next_obs]
        return Transitions(
            obs.reshape(count, *self.obs_shape),
            rows_BW[:, self.action],
            rows_BW[:, self.reward.start],
            rows_BW[:, self.discount.start],
            next_obs.reshape(count, *self.obs_shape),
            rows_BW[:, self.next_mask] if self.mask_width else None,
        )
