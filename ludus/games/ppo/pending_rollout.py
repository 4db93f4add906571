"""Data between the stages of a round, as a part: the rollout to estimate, the rows to learn from."""

from __future__ import annotations

import torch

from ludus.data.replay.pending import Form, PendingData
from ludus.games.elementwise import is_plain
from ludus.games.game import FusedGame, Moves
from ludus.games.ppo.collect import Rollout
from ludus.games.ppo.config import FusedPpoConfig


def make_pending(
    config: FusedPpoConfig, game: FusedGame, *, width: int, device: torch.device
) -> PendingData:
    """Return what holds a rollout from `collect` to `estimate`, and its rows to the last update."""
    actions = game.actions(game.roles[0])
    turns, sides = config.rollout_steps, config.num_games * len(game.roles)
    # Expected shapes and types; on the meta device they take no memory.
    seen = torch.zeros(turns, sides, game.observation_size(game.roles[0]), device="meta")
    done = torch.zeros(turns, sides, dtype=torch.bool, device="meta")
    kind = torch.int64 if isinstance(actions, Moves) else torch.float32
    numbers = 1 if isinstance(actions, Moves) else len(actions.low)
    acted = torch.zeros(turns, sides, numbers, dtype=kind, device="meta")
    kept = None if is_plain(game) else done
    return PendingData(
        device,
        {"rollout": Form(Rollout._asdict, lambda columns: Rollout(**columns))},
        rollout=Rollout(seen, acted, done.float(), done, done, seen, kept)._asdict(),
        rows=torch.zeros(turns * sides, width, device="meta"),
    )
