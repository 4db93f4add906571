"""Data between the stages of an iteration, as a part: rollouts to estimate, rows to learn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.arena.libraries import TensorDict
from ludus.arena.playing.columns import to_columns, to_tensordict
from ludus.core import states
from ludus.core.errors import CheckpointError

_NOTHING = "the rollouts of this iteration are not there; resume from a checkpoint that holds them"
Kinds = Mapping[str, Tensor]
"""By column, a tensor on the meta device with its shape and type."""


class PendingRollouts:
    """Holds rollouts (B, T) from `collect` to `estimate`, and their rows from there to the last update."""

    def __init__(self, rollouts: Kinds, rows: Kinds, device: torch.device) -> None:
        self.rollouts: TensorDict | None = None
        self.rows: dict[str, Tensor] | None = None
        self._rollouts_like, self._rows_like, self._device = rollouts, rows, device

    def take_rollouts(self) -> TensorDict:
        """Return and release the rollouts to estimate."""
        found, self.rollouts = self.rollouts, None
        if found is None:
            raise CheckpointError(_NOTHING)
        return found

    def take_rows(self, *, is_last: bool) -> dict[str, Tensor]:
        """Return the rows to learn from; release them at the last update."""
        found = self.rows
        if found is None:
            raise CheckpointError(_NOTHING)
        self.rows = None if is_last else found
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the pending data, None for each that is absent."""
        rollouts = None if self.rollouts is None else to_columns(self.rollouts)
        return {"rollouts": rollouts, "rows": None if self.rows is None else dict(self.rows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the pending data."""
        states.check_keys(state, "rollouts", "rows")
        rollouts = self._read(state, "rollouts", self._rollouts_like)
        self.rows = self._read(state, "rows", self._rows_like)
        self.rollouts = None if rollouts is None else to_tensordict(rollouts, 2)

    def _read(self, state: Mapping[str, Any], key: str, like: Kinds) -> dict[str, Tensor] | None:
        if state[key] is None:
            return None
        saved = states.mapping(state, key)
        with states.within(key):
            states.check_keys(saved, *like)
            return {
                name: states.like(saved, name, own).to(self._device) for name, own in like.items()
            }


def kinds_of(columns: Mapping[str, Tensor], batch: tuple[int, ...], num_dims: int) -> Kinds:
    """Return columns for this many examples on the meta device, of the kinds of the given ones."""
    return {
        name: torch.empty(*batch, *tensor.shape[num_dims:], dtype=tensor.dtype, device="meta")
        for name, tensor in columns.items()
    }
