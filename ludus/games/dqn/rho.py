"""rho: how strong a host is, as games won for each step that was played.

Shapes: B games, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.core.errors import Interrupted, LudusError
from ludus.games.game import FusedGame, Moves, State
from ludus.games.player import Player, begin


class Played(NamedTuple):
    """What came of a batch of games."""

    steps: Tensor
    """(B,) in which step each game ended; the most steps there are where it did not."""
    is_finished: Tensor
    """(B,) whether it ended."""
    had_ended: Tensor
    """(B,) whether it had ended before the first step."""
    counts: dict[str, Tensor]
    """(A,) how often each action was played, by role, in games that went on."""


def play_games(
    game: FusedGame,
    players: Mapping[str, Player],
    state: State,
    *,
    max_steps: int,
    generator: torch.Generator,
    checked: Collection[str] = (),
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Played:
    """Play these new games to their ends, or for this many steps, each a move of every role."""
    for player in players.values():
        begin(player)
    had_ended_B = over_B = game.over(state)
    steps_B = torch.zeros_like(over_B, dtype=torch.int64)
    counts = {}
    for role in game.roles:
        moves = game.actions(role)
        assert isinstance(moves, Moves)
        counts[role] = torch.zeros(moves.count, dtype=torch.int64, device=over_B.device)
    for _ in range(max_steps):
        if bool(over_B.all()):
            break
        if is_interrupted():
            raise Interrupted
        steps_B += ~over_B
        for role in game.roles:
            obs_BO = game.observe(state, role)
            actions_B = players[role].act(obs_BO, game.legal(obs_BO, role), generator)
            if role in checked:
                game.check_actions(state, role, actions_B)
            counts[role].index_add_(0, actions_B.long(), (~game.over(state)).long())
            state = game.step(state, role, actions_B).state
        over_B = game.over(state)
    return Played(steps_B, game.done(state), had_ended_B, counts)


def rho(played: Played) -> float:
    """Return finished games over steps: high for a strong host, 0 for one that never wins.

    A game that ends in step i costs i, one that does not end costs all steps and is not counted as
    finished; games that had ended before the first step count in neither. Raise LudusError where all had.
    """
    counts_B = ~played.had_ended
    steps = int(played.steps[counts_B].sum())
    if not steps:
        raise LudusError(
            f"all {len(counts_B)} games had ended before the first step, so there is no rho; play more"
            " games, or raise max_num_points or max_value of the game"
        )
    return int((played.is_finished & counts_B).sum()) / steps
