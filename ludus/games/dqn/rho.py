"""rho: the strength of a host, as games won for each step that was played.

Shapes: B games, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.games.game import FusedGame, State
from ludus.games.matches import moments
from ludus.games.player import Player, num_moves


class Played(NamedTuple):
    """The results of a batch of games."""

    steps: Tensor
    """(B,) the step in which each game ended; max_steps where it did not."""
    is_finished: Tensor
    """(B,) whether it ended."""
    had_ended: Tensor
    """(B,) whether it had ended before the first step."""
    counts: dict[str, Tensor]
    """(A,) the number of times each action was played, by role, in games that were not over."""
    returns: Tensor
    """(B, R) the return of each role."""


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
    had_ended_B = game.over(state)
    steps_B = torch.zeros_like(had_ended_B, dtype=torch.int64)
    counts = {
        role: steps_B.new_zeros(num_moves(game, role, who="a host or an agent"))
        for role in game.roles
    }
    played = moments(
        game,
        players,
        state,
        generator,
        max_turns=max_steps,
        checked=checked,
        is_interrupted=is_interrupted,
    )
    returns_BR = torch.zeros(len(steps_B), len(game.roles), device=steps_B.device)
    for moment in played:
        returns_BR = returns_BR + moment.rewards
        goes_on_B = (~moment.was_over).long()
        if moment.role == game.roles[0]:
            steps_B += goes_on_B
        counts[moment.role].index_add_(0, moment.actions.long(), goes_on_B)
        state = moment.after
    done_B = game.done(state)
    # A truncated game has not ended, however early that was.
    steps_B = steps_B.masked_fill(~(done_B | had_ended_B), max_steps)
    return Played(steps_B, done_B, had_ended_B, counts, returns_BR)


def rho(played: Played) -> float:
    """Return finished games over steps: high for a strong host, 0 for one that never wins.

    A game that ends in step i costs i; one that does not end costs all steps and does not count as
    finished; games that had ended before the first step count in neither. Raises LudusError where all had.
    """
    counts_B = ~played.had_ended
    steps = int(played.steps[counts_B].sum())
    if not steps:
        raise LudusError(
            f"all {len(counts_B)} games had ended before the first step, so there is no rho; play more games"
        )
    return int((played.is_finished & counts_B).sum()) / steps


def mean_return(played: Played, role: int) -> float:
    """Return the mean return of the role at this index, without games that had ended before they began."""
    return float(played.returns[~played.had_ended, role].double().mean())
