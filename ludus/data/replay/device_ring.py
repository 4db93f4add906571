"""A replay buffer on the device: rows are pushed, kept and sampled there, without the host.

Shapes: N rows of a push, B of a batch, C the capacity.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.data.replay.segments import RingPieces
from ludus.seeds import derive


class Column(NamedTuple):
    """One column of a row: an observation, a mask, a value."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class DeviceReplay:
    """The last `capacity` rows in a tensor per column, sampled uniformly by its own generator.

    The number of rows is known on the device alone, so nothing waits for it, and pushing and sampling can be
    part of a captured CUDA graph (with `generator` registered there). Only saving waits. For envs that step
    on the CPU use `ReplayBuffer`.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        capacity: int,
        *,
        seed: int,
        device: torch.device,
        name: str = "replay",
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"the capacity of '{name}' is {capacity}; use 1 or more")
        if not columns:
            raise ConfigError(f"'{name}' has no columns; name one at least")
        self.capacity = capacity
        self.name = name
        self.device = device
        self.total_pushed = torch.zeros((), dtype=torch.int64, device=device)
        """The number of rows ever pushed; the next one goes to index `total_pushed % capacity`."""
        self._seed = seed
        self.generator = torch.Generator(device).manual_seed(derive(seed, name))
        # One spare row beyond the capacity: rows that are not kept are written there.
        self._with_spare = {
            column: torch.zeros(capacity + 1, *shape, dtype=dtype, device=device)
            for column, (shape, dtype) in columns.items()
        }
        self._rings = {column: ring[:capacity] for column, ring in self._with_spare.items()}
        self._pieces = RingPieces(self._rings, finite=False)
        self._is_empty = True

    @property
    def size(self) -> Tensor:
        """The number of rows held, on the device."""
        return self.total_pushed.clamp(max=self.capacity)

    def push(self, rows: Mapping[str, Tensor]) -> None:
        """Overwrite the oldest rows with N new ones, a tensor of (N, *shape) per column."""
        count = self._count(rows)
        if not count:
            return
        # If there are more rows than the capacity, only the newest are kept: no index is written twice.
        kept = min(count, self.capacity)
        numbers_N = torch.arange(count - kept, count, device=self.device)
        places_N = numbers_N.add_(self.total_pushed).remainder_(self.capacity)
        with _in_any_order():
            for column, ring in self._rings.items():
                ring.index_copy_(0, places_N, rows[column][count - kept :])
        self.total_pushed.add_(count)
        self._is_empty = False

    def push_where(self, keep_N: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Write the rows that a mask keeps, in order; the host does not know how many.

        A buffer into which no row was kept yet returns rows of zeros.
        """
        count = self._count(rows)
        if tuple(keep_N.shape) != (count,) or keep_N.dtype != torch.bool:
            raise LudusError(
                f"the mask pushed to '{self.name}' is {keep_N.dtype} of {tuple(keep_N.shape)}; it must be"
                f" torch.bool of ({count},)"
            )
        if not count:
            return
        ends_N = keep_N.cumsum(0)
        # If there are more rows than the capacity, only the newest are kept: no index is written twice.
        keep_N = keep_N & (ends_N > ends_N[-1] - self.capacity)
        places_N = (ends_N + (self.total_pushed - 1)).remainder_(self.capacity)
        places_N = places_N.masked_fill_(~keep_N, self.capacity)
        with _in_any_order():
            for column, ring in self._with_spare.items():
                ring.index_copy_(0, places_N, rows[column])
        self.total_pushed.add_(ends_N[-1])
        self._is_empty = False

    def _count(self, rows: Mapping[str, Tensor]) -> int:
        """Return the number of rows; raise LudusError unless they are rows of this buffer."""
        for column in rows:
            if column not in self._rings:
                known = nearest(column, self._rings)
                raise LudusError(f"'{self.name}' has no column '{column}'.{known}")
        count = -1
        for column, ring in self._rings.items():
            if column not in rows:
                raise LudusError(f"the column '{column}' of '{self.name}' was not pushed; give it")
            given = rows[column]
            count = len(given) if count < 0 and given.ndim else count
            shape = (count, *ring.shape[1:])
            found = tuple(given.shape), given.dtype, given.device
            if found != (shape, ring.dtype, ring.device):
                raise LudusError(
                    f"the column '{column}' pushed to '{self.name}' is {given.dtype} of {found[0]} on"
                    f" {given.device}; it must be {ring.dtype} of {shape} on {ring.device}"
                )
        return count

    def draw(self, batch_size: int) -> Tensor:
        """Return (B,) indices of rows held, sampled uniformly with replacement."""
        if batch_size < 1:
            raise ConfigError(f"a batch of {batch_size} was asked of '{self.name}'; use 1 or more")
        if self._is_empty:
            raise LudusError(
                f"'{self.name}' is empty, so nothing can be drawn; collect some steps first"
            )
        places_B = torch.empty(batch_size, dtype=torch.int64, device=self.device)
        # Of 63 random bits, so the modulo bias is negligible.
        return places_B.random_(generator=self.generator).remainder_(self.size.clamp(min=1))

    def at(self, places_B: Tensor) -> dict[str, Tensor]:
        """Return copies of the rows at these indices, by column."""
        return {column: ring.index_select(0, places_B) for column, ring in self._rings.items()}

    def sample(self, batch_size: int) -> dict[str, Tensor]:
        """Return rows sampled uniformly with replacement, by column, in new memory."""
        return self.at(self.draw(batch_size))

    def state_dict(self) -> dict[str, Any]:
        """Return all rows held and the generator; rows already saved once are not copied."""
        total = int(self.total_pushed)
        return {
            "capacity": self.capacity,
            "total": total,
            "rows": self._pieces.save(total),
            "generator": {"device": self.device.type, "state": self.generator.get_state()},
        }

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Take the rows of another run; sampling stays this run's own."""
        self.load_state_dict({**state, "generator": self.state_dict()["generator"]})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy the rows back into the ring, in place."""
        states.check_keys(state, "capacity", "total", "rows", "generator")
        self._pieces.check_capacity(state, self.name)
        total = states.whole(state, "total")
        generator = self._read_generator(state, total)
        with states.within("rows"):
            self._pieces.load(state["rows"], total)
        self.total_pushed.fill_(total)
        self._is_empty = not total
        self.generator.set_state(generator.get_state())

    def _read_generator(self, state: Mapping[str, Any], total: int) -> torch.Generator:
        """Return the saved generator, or a newly derived one if it was saved on another type of device."""
        own = torch.Generator(self.device)
        saved = states.mapping(state, "generator")
        with states.within("generator"):
            states.check_keys(saved, "device", "state")
            if states.text(saved, "device") != self.device.type:
                return own.manual_seed(derive(self._seed, self.name, total))
            own.set_state(states.like(saved, "state", own.get_state()))
        return own


@contextlib.contextmanager
def _in_any_order() -> Iterator[None]:
    """Allow writes in any order: no index is written twice except the spare one, which is never read.

    In deterministic mode torch would sort all indices first, which takes three times as long as the rest of a
    rollout.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
