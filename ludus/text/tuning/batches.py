"""Batches of tokens, shuffled by (seed, epoch) alone, so that a run can resume at any position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.data.batches.memory import Batches
from ludus.seeds import generator
from ludus.text.tuning.tokens import TokenBatch, TokenTable, make_batch


class TokenBatches(Batches):
    """The training batches of a table of tokens; each is filled up to its own longest sequence."""

    def __init__(
        self, table: TokenTable, *, batch_size: int, seed: int, device: torch.device
    ) -> None:
        self.table, self._size, self._seed, self._device = table, batch_size, seed, device
        self.epoch, self.position = -1, 0
        self._rows: tuple[Tensor, ...] = ()
        self._num_tokens: list[int] = []
        self.num_tokens = 0
        """The number of tokens of the last batch, prompts included and padding not."""

    def start(self, epoch: int) -> None:
        """Shuffle by (seed, epoch)."""
        self.epoch, self.position = epoch, 0
        order = torch.randperm(
            len(self.table), generator=generator(self._seed, "text_tuning order", epoch)
        )
        self._rows = order.split(self._size)
        lengths = self.table.example_lengths.index_select(0, order).split(self._size)
        self._num_tokens = [int(one.sum()) for one in lengths]

    def next(self) -> TokenBatch:
        """Return the next batch."""
        rows = self._rows[self.position]
        self.num_tokens = self._num_tokens[self.position]
        self.position += 1
        return make_batch(self.table, rows, device=self._device)

    def length(self) -> int:
        """Return the number of batches of an epoch."""
        return -(-len(self.table) // self._size)

    def has_ended(self) -> bool:
        """Return whether this epoch has no batch left."""
        return self.position >= self.length()

    def close(self) -> None:
        """Do nothing: no other process loads."""

    def digest(self) -> str | None:
        """Return a digest of all tokens."""
        return self.table.digest()

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the order and the position."""
        states.check_keys(state, "epoch", "position")
        epoch = states.whole(state, "epoch", at_least=-1)
        position = states.whole(state, "position", at_most=self.length() if epoch >= 0 else 0)
        if epoch >= 0:
            self.start(epoch)
        self.epoch, self.position = epoch, position
