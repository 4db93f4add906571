"""The steps of one iteration of an on-policy agent, and the minibatches it learns from.

    add ... add      T steps of N envs
    pack(rows)       the agent turns them into T*N rows: whatever its loss needs, advantages included
    shuffle, next    each epoch iterates over all rows once, in a new order

Shapes: T steps, N envs, D numbers of an observation, k numbers of an action, A actions, W row width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.data.replay.row_layout import RowLayout
from ludus.seeds import derive, read_generator

Array = NDArray[Any]


class Minibatch(NamedTuple):
    """Some of the packed rows."""

    rows: Tensor
    """(B, W); the last one of an epoch is shorter if B does not divide T*N."""
    indices: Tensor
    """(B,) int64: step t of env n is t*N + n, to look up what is not in the rows."""
    images: Tensor | None
    """(B, *obs_shape) uint8 on the device of the rows, if observations are images."""


class RolloutBuffer:
    """Arrays of (T, N, ...), allocated once and filled step by step.

    The tensors `obs`, `actions`, `rewards`, `terminated`, `truncated`, `next_obs` and `masks` are on the CPU;
    `next_obs` holds the final observation where an episode ended.
    """

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        layout: RowLayout,
        *,
        seed: int,
        name: str = "rollout",
        device: torch.device = torch.device("cpu"),  # noqa: B008 - a device is immutable
        batch_size: int | None = None,
    ) -> None:
        if num_steps < 1:
            raise ConfigError(f"the number of steps of '{name}' is {num_steps}; use 1 or more")
        self.num_steps = num_steps
        self.num_envs = num_envs
        self.name = name
        self.device = device
        """The device of the packed rows."""
        self.batch_size = batch_size
        """The number of rows `sample` returns by default."""
        shape = (num_steps, num_envs)
        kind = torch.uint8 if layout.has_images else torch.float32
        self.obs = torch.zeros(*shape, *layout.obs_shape, dtype=kind)
        self.actions = torch.zeros(*shape, layout.action_width)
        self.rewards = torch.zeros(shape)
        self.terminated = torch.zeros(shape, dtype=torch.bool)
        self.truncated = torch.zeros(shape, dtype=torch.bool)
        self.next_obs = torch.zeros_like(self.obs)
        self.masks: Tensor | None = None
        """(T, N, A) bool: the actions allowed at `obs`; None if the env has no masks."""
        if layout.mask_width:
            self.masks = torch.zeros(*shape, layout.mask_width, dtype=torch.bool)
        self._views = [tensor.numpy() for tensor in self._tensors().values()]
        self.length = 0
        """The number of steps added since the last `clear`."""
        self._generator = np.random.Generator(np.random.PCG64(derive(seed, name)))
        self._rows: Tensor | None = None
        self._order = torch.zeros(0, dtype=torch.int64)
        self._position = 0

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {
            "obs": self.obs,
            "actions": self.actions,
            "rewards": self.rewards,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "next_obs": self.next_obs,
        }
        return tensors if self.masks is None else tensors | {"masks": self.masks}

    @property
    def is_full(self) -> bool:
        """Whether all T steps have been added."""
        return self.length == self.num_steps

    def add(
        self,
        obs_ND: Array,
        actions_Nk: Array,
        rewards_N: Array,
        terminated_N: Array,
        truncated_N: Array,
        next_obs_ND: Array,
        masks_NA: Array | None = None,
    ) -> None:
        """Copy one step of every env; `masks_NA` are the actions that were allowed at `obs_ND`."""
        step, views = self.length, self._views
        if step == self.num_steps:
            raise LudusError(f"'{self.name}' is full after {step} steps; clear it before the next")
        views[0][step] = obs_ND
        views[1][step] = actions_Nk
        views[2][step] = rewards_N
        views[3][step] = terminated_N
        views[4][step] = truncated_N
        views[5][step] = next_obs_ND
        if self.masks is not None:
            if masks_NA is None:
                raise LudusError(
                    f"'{self.name}' keeps action masks, but none were added; give them"
                )
            views[6][step] = masks_NA
        self.length = step + 1

    def clear(self) -> None:
        """Drop all steps and rows; the memory stays."""
        self.length = self._position = 0
        self._rows = None
        self._order = self._order[:0]

    def pack(self, rows: Tensor) -> None:
        """Set the rows to learn from, (T*N, W), which must not change from now on."""
        expected = self.length * self.num_envs
        if rows.ndim != 2 or len(rows) != expected:
            raise LudusError(
                f"rows of {tuple(rows.shape)} were packed into '{self.name}', which holds {expected}"
                " steps; give one row a step"
            )
        self._rows = rows.detach().to(self.device)
        self._order, self._position = self._order[:0], 0

    def shuffle(self) -> None:
        """Begin an epoch: draw the order of the rows."""
        if self._rows is None:
            raise LudusError(f"'{self.name}' has no rows to shuffle; pack them first")
        self._order = torch.from_numpy(self._generator.permutation(len(self._rows)))
        self._position = 0

    @property
    def has_next(self) -> bool:
        """Whether this epoch has rows left."""
        return self._position < len(self._order)

    def next(self, batch_size: int) -> Minibatch:
        """Return the next rows of this epoch."""
        if self._rows is None or not self.has_next:
            raise LudusError(f"the epoch of '{self.name}' has ended; shuffle to begin another")
        if batch_size < 1:
            raise ConfigError(
                f"a minibatch of {batch_size} was asked of '{self.name}'; use 1 or more"
            )
        indices = self._order[self._position : self._position + batch_size]
        self._position += len(indices)
        images = None
        if self.obs.dtype == torch.uint8:
            images = self.obs.flatten(0, 1).index_select(0, indices).to(self.device)
        places = indices.to(self.device)
        return Minibatch(self._rows.index_select(0, places), places, images)

    def sample(self, batch_size: int | None = None) -> Minibatch:
        """Return the next rows of this epoch; after its end, those of a new, reshuffled one."""
        size = self.batch_size if batch_size is None else batch_size
        if size is None:
            raise LudusError(
                f"'{self.name}' was made without a batch_size; give one to sample(batch_size)"
            )
        if not self.has_next:
            self.shuffle()
        return self.next(size)

    def minibatches(self, batch_size: int) -> Iterator[Minibatch]:
        """Yield all rows once, in a new order."""
        self.shuffle()
        while self.has_next:
            yield self.next(batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the steps added so far, the packed rows, and the position in the epoch."""
        return {
            "steps": {name: tensor[: self.length] for name, tensor in self._tensors().items()},
            "length": self.length,
            "rows": self._rows,
            "order": self._order,
            "position": self._position,
            "generator": self._generator.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy the steps back, in place."""
        names = ("steps", "length", "rows", "order", "position", "generator")
        states.check_keys(state, *names)
        length = states.whole(state, "length", at_most=self.num_steps)
        own, steps = self._tensors(), states.mapping(state, "steps")
        with states.within("steps"):
            states.check_keys(steps, *own)
            for name, tensor in own.items():
                states.shaped(steps, name, tensor, (length, *tensor.shape[1:]), finite=True)
        rows, count = state["rows"], length * self.num_envs
        if rows is not None:
            states.shaped(state, "rows", torch.zeros(0), (count, None))
        order = states.shaped(state, "order", self._order, (None,))
        if len(order) and (rows is None or not torch.equal(order.sort()[0], torch.arange(count))):
            raise states.StateError("order", f"is no order of {count} rows")
        position = states.whole(state, "position", at_most=len(order))
        generator = read_generator(state, "generator")
        for name, tensor in own.items():
            tensor[:length].copy_(steps[name])
        self.length = length
        self._rows = None if rows is None else rows.to(self.device)
        self._order, self._position = order.clone(), position
        self._generator.bit_generator.state = generator
