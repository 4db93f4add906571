"""A replay buffer: the newest transitions in one packed ring, sampled uniformly.

Shapes: N envs, D numbers of an observation, k numbers of an action, A actions, B batch, W row width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core import states
from ludus.core.errors import ConfigError, LudusError
from ludus.data.replay.row_layout import RowLayout
from ludus.data.replay.segments import RingPieces
from ludus.data.upload import upload
from ludus.seeds import derive, read_generator

# The number of rows staged on the CPU before they are copied to a buffer on another device.
_STAGED = 1024


class Batch(NamedTuple):
    """Sampled transitions; `RowLayout.split(batch.rows, batch.images)` names their columns."""

    rows: Tensor
    """(B, W) float32."""
    images: Tensor | None
    """(B, 2 D) uint8: obs and next_obs, if observations are uint8."""
    indices: NDArray[np.int64] | None
    """(B,) the indices in the ring, for `update_priorities`."""
    weights: Tensor | None
    """(B,) float32: the importance weight of each transition in the loss; None if all are 1."""


class ReplayBuffer:
    """The last `capacity` transitions, one packed row each, in memory that is allocated once.

    If the device is not the CPU the rows live there; new ones wait in a small staging area and are copied
    over before the next sample. The sampled indices are the same on every device.
    """

    _more_names: ClassVar[tuple[str, ...]] = ()
    """The further keys in the state of a subclass."""

    def __init__(
        self,
        layout: RowLayout,
        capacity: int,
        *,
        seed: int,
        name: str = "replay",
        device: torch.device = torch.device("cpu"),  # noqa: B008 - a device is immutable
        batch_size: int | None = None,
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"the capacity of '{name}' is {capacity}; use 1 or more")
        self.layout = layout
        self.capacity = capacity
        self.name = name
        self.device = device
        self.batch_size = batch_size
        """The number of transitions `sample` returns by default."""
        self.total = 0
        """The number of transitions ever pushed; the next one goes to index `total % capacity`."""
        self._generator = np.random.Generator(np.random.PCG64(derive(seed, name)))
        self._rows = torch.zeros(capacity, layout.width, device=device)
        self._images: Tensor | None = None
        if layout.has_images:
            self._images = torch.zeros(
                capacity, layout.image_width, dtype=torch.uint8, device=device
            )
        rings = {"rows": self._rows} | ({} if self._images is None else {"images": self._images})
        self._pieces = RingPieces(rings)
        self._open_for_writing()
        self._outs: dict[int, _Out] = {}

    def _open_for_writing(self) -> None:
        """Create NumPy views of where pushed rows go: the ring itself, or the staging area."""
        self._is_staged = self.device.type != "cpu"
        rows, images = self._rows, self._images
        if self._is_staged:
            count = min(self.capacity, _STAGED)
            rows = torch.zeros(count, self.layout.width)
            images = None if images is None else torch.zeros(count, images.shape[1]).byte()
        self._target, self._target_images = rows, images
        columns = self.layout.split(rows.numpy(), None if images is None else images.numpy())
        self._obs, self._actions, self._rewards, self._discounts = columns[:4]
        self._next_obs, self._next_masks = columns[4:]
        self._limit = len(rows)
        self._at = 0
        """The index in the target of the next row."""

    @property
    def size(self) -> int:
        """The number of transitions held."""
        return self.total if self.total < self.capacity else self.capacity

    def push(
        self,
        obs_ND: NDArray[Any],
        actions_Nk: NDArray[Any],
        rewards_N: NDArray[Any],
        discounts_N: NDArray[Any],
        next_obs_ND: NDArray[Any],
        next_masks: NDArray[Any] | None = None,
    ) -> None:
        """Overwrite the oldest transitions with N new ones; everything is copied.

        `discounts_N` replaces the usual `dones`, and says more: gamma**n if the episode went on or was
        truncated, and 0 if it terminated.
        """
        start = self._at
        end = start + len(rewards_N)
        if end > self._limit:
            self._push_in_pieces(
                obs_ND, actions_Nk, rewards_N, discounts_N, next_obs_ND, next_masks
            )
            return
        self._obs[start:end] = obs_ND
        self._actions[start:end] = actions_Nk
        self._rewards[start:end] = rewards_N
        self._discounts[start:end] = discounts_N
        self._next_obs[start:end] = next_obs_ND
        if self._next_masks is not None:
            if next_masks is None:
                raise LudusError(
                    f"'{self.name}' keeps action masks, but none were pushed; give them"
                )
            self._next_masks[start:end] = next_masks
        self._at = end
        self.total += end - start
        if end == self._limit:
            self._turn()

    def _push_in_pieces(self, *columns: NDArray[Any] | None) -> None:
        """Push rows that do not fit before the end of the target, a stretch at a time."""
        assert columns[2] is not None
        count, done = len(columns[2]), 0
        while done < count:
            end = min(count, done + self._limit - self._at)
            self.push(*[None if column is None else column[done:end] for column in columns])  # type: ignore[arg-type]
            done = end

    def _turn(self) -> None:
        """Go back to the start of the target, once it is full."""
        if self._is_staged:
            self._flush()
        self._at = 0

    def _flush(self) -> None:
        """Copy the staged rows to the device."""
        if not self._is_staged or self._at == 0:
            return
        for ring, staged in ((self._rows, self._target), (self._images, self._target_images)):
            if ring is None or staged is None:
                continue
            start = (self.total - self._at) % self.capacity
            fitting = min(self._at, self.capacity - start)
            rows = upload(staged[: self._at], self.device)
            ring[start : start + fitting].copy_(rows[:fitting])
            ring[: self._at - fitting].copy_(rows[fitting:])
        self._at = 0

    def sample(self, batch_size: int | None = None) -> Batch:
        """Return transitions sampled uniformly with replacement; by default the buffer's `batch_size`.

        The batch is in memory that the next sample of the same size overwrites: copy what must stay.
        """
        out = self._outs.get(batch_size) or self._out(batch_size)  # type: ignore[arg-type]
        size = self.size
        if not size:
            raise self._nothing_to_draw()
        # Faster than Generator.integers; the product with a number below 1 never reaches `size`.
        self._generator.random(out=out.uniform)
        np.multiply(out.uniform, size, out=out.indices, casting="unsafe")
        self._gather(out.indices, out)
        return out.batch

    def _nothing_to_draw(self) -> LudusError:
        return LudusError(
            f"'{self.name}' is empty, so nothing can be drawn; collect some steps first"
        )

    def _gather(self, indices: NDArray[np.int64], out: _Out) -> None:
        """Copy the rows at these indices into `out`."""
        if self._is_staged:
            self._flush()
            places = upload(torch.from_numpy(indices), self.device)
            torch.index_select(self._rows, 0, places, out=out.batch.rows)
            if self._images is not None:
                torch.index_select(self._images, 0, places, out=out.batch.images)
            return
        # Twice as fast as index_select for small batches; "clip" because "raise" makes a copy.
        out.ring.take(indices, 0, out.rows, "clip")
        if out.image_ring is not None:
            out.image_ring.take(indices, 0, out.images, "clip")

    def _out(self, batch_size: int | None) -> _Out:
        if batch_size is None:
            if self.batch_size is None:
                raise LudusError(
                    f"'{self.name}' was made without a batch_size; give one to sample(batch_size)"
                )
            return self._outs.get(self.batch_size) or self._out(self.batch_size)
        if batch_size < 1:
            raise ConfigError(f"a batch of {batch_size} was asked of '{self.name}'; use 1 or more")
        self._outs[batch_size] = _Out(batch_size, self._rows, self._images)
        return self._outs[batch_size]

    def state_dict(self) -> dict[str, Any]:
        """Return all transitions held and the generator; rows already saved once are not copied."""
        self._flush()
        return {
            "capacity": self.capacity,
            "total": self.total,
            "transitions": self._pieces.save(self.total),
            "generator": self._generator.bit_generator.state,
        }

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Take the transitions of another run; sampling stays this run's own."""
        self.load_state_dict({**state, "generator": self._generator.bit_generator.state})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy the transitions back into the ring, in place."""
        names = ("capacity", "total", "transitions", "generator")
        states.check_keys(state, *names, *self._more_names)
        self._pieces.check_capacity(state, self.name)
        total, generator = states.whole(state, "total"), read_generator(state, "generator")
        with states.within("transitions"):
            self._pieces.load(state["transitions"], total)
        self.total = total
        self._at = 0 if self._is_staged else total % self.capacity
        self._generator.bit_generator.state = generator


class _Out:
    """The memory of a batch of one size, and the NumPy views that a gather on the CPU needs."""

    def __init__(self, batch_size: int, ring: Tensor, image_ring: Tensor | None) -> None:
        self.uniform = np.empty(batch_size)
        self.indices = np.empty(batch_size, dtype=np.int64)
        rows = ring.new_empty(batch_size, ring.shape[1])
        images = (
            None if image_ring is None else image_ring.new_empty(batch_size, image_ring.shape[1])
        )
        self.batch = Batch(rows, images, self.indices, None)
        if ring.device.type == "cpu":
            self.ring, self.rows = ring.numpy(), rows.numpy()
            self.image_ring = None if image_ring is None else image_ring.numpy()
            self.images = None if images is None else images.numpy()
