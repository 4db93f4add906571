"""Data between the stages of a round, as a part: the rollout to estimate, the rows to learn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import CheckpointError
from ludus.games.elementwise import is_plain
from ludus.games.game import FusedGame, Moves
from ludus.games.ppo.collect import Rollout
from ludus.games.ppo.config import FusedPpoConfig

_NOTHING = "the rollout of this round is not there; resume from a checkpoint that holds it"


class PendingRollout:
    """Holds a rollout from `collect` to `estimate`, and its rows from there to the last update."""

    def __init__(
        self, config: FusedPpoConfig, game: FusedGame, *, width: int, device: torch.device
    ) -> None:
        self.rollout: Rollout | None = None
        self.rows: Tensor | None = None
        self._device = device
        actions = game.actions(game.roles[0])
        turns, sides = config.rollout_steps, config.num_games * len(game.roles)
        seen = torch.zeros(turns, sides, game.observation_size(game.roles[0]), device="meta")
        done = torch.zeros(turns, sides, dtype=torch.bool, device="meta")
        is_moves = isinstance(actions, Moves)
        kind = torch.int64 if is_moves else torch.float32
        numbers = 1 if isinstance(actions, Moves) else len(actions.low)
        acted = torch.zeros(turns, sides, numbers, dtype=kind, device="meta")
        kept = None if is_plain(game) else done
        # Expected shapes and types; on the meta device they take no memory.
        self._like = Rollout(seen, acted, done.float(), done, done, seen, kept)
        self._rows_like = torch.zeros(turns * sides, width, device="meta")

    def take_rollout(self) -> Rollout:
        """Return and release the rollout to estimate."""
        found, self.rollout = self.rollout, None
        if found is None:
            raise CheckpointError(_NOTHING)
        return found

    def take_rows(self, *, is_last: bool) -> Tensor:
        """Return the rows to learn from; release them at the last update."""
        found = self.rows
        if found is None:
            raise CheckpointError(_NOTHING)
        self.rows = None if is_last else found
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the pending data, None for each that is absent."""
        rollout = None if self.rollout is None else self.rollout._asdict()
        return {"rollout": rollout, "rows": self.rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the pending data."""
        states.check_keys(state, "rollout", "rows")
        rows, rollout = None, None
        if state["rows"] is not None:
            rows = states.like(state, "rows", self._rows_like).to(self._device)
        if state["rollout"] is not None:
            saved = states.mapping(state, "rollout")
            with states.within("rollout"):
                states.check_keys(saved, *Rollout._fields)
                found: dict[str, Any] = {
                    name: None if own is None else states.like(saved, name, own).to(self._device)
                    for name, own in self._like._asdict().items()
                }
                rollout = Rollout(**found)
        self.rows, self.rollout = rows, rollout
