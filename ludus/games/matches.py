"""Play games between players to the end: move by move, as text, or for their results and rho.

rho is the strength of a host: games won for each step that was played. Shapes: B games, R roles, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.core.errors import Interrupted, LudusError
from ludus.games.game import FusedGame, State
from ludus.games.player import Player, ask, begin, num_moves

# Checking whether all games are over waits for a GPU, so there it is not done at every turn.
_ASKED_EVERY = {"cuda": 8}


class GameMoment(NamedTuple):
    """One move of all games."""

    role: str
    actions: Tensor
    before: State
    after: State
    rewards: Tensor
    """(B, R)"""
    was_over: Tensor
    """(B,)"""


@torch.no_grad()
def moments(
    game: FusedGame,
    players: Mapping[str, Player],
    state: State,
    generator: torch.Generator,
    *,
    max_turns: int,
    checked: Collection[str] | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[GameMoment]:
    """Play these new games to their end, or for this many turns of every role, and yield every move.

    The actions of the roles in `checked`, by default of all, are checked for legality. Raises Interrupted
    between two turns.
    """
    for player in players.values():
        begin(player)
    for turn in range(max_turns):
        if turn % _ASKED_EVERY.get(generator.device.type, 1) == 0 and bool(game.over(state).all()):
            return
        if is_interrupted():
            raise Interrupted
        for role in game.roles:
            over_B = game.over(state)
            is_checked = checked is None or role in checked
            actions = ask(players[role], game, state, role, generator, is_checked=is_checked)
            after, rewards_BR = game.step(state, role, actions)
            yield GameMoment(role, actions, state, after, rewards_BR, over_B)
            state = after


def transcript(
    game: FusedGame,
    players: Mapping[str, Player],
    names: Mapping[str, str],
    generator: torch.Generator,
    *,
    max_turns: int,
) -> Iterator[str]:
    """Yield one game as text: who plays, each move with the position after it, and the result.

    `names` maps each role to the name of its player.
    """
    state = game.reset(1, generator)
    yield "\n".join([f"{role}: {names[role]}" for role in game.roles] + [game.text(state, 0)])
    returns_R, number = torch.zeros(len(game.roles)), 0
    for moment in moments(game, players, state, generator, max_turns=max_turns):
        if bool(moment.was_over[0]):
            break
        number += 1
        returns_R = returns_R + moment.rewards[0].cpu()
        state = moment.after
        what = game.told(moment.role, moment.actions[0])
        yield f"\nmove {number}: {moment.role} plays {what}\n{game.text(state, 0)}"
    end = "ended" if bool(game.done(state)[0]) else "was cut off"
    gains = ", ".join(
        f"{role} {gain:g}" for role, gain in zip(game.roles, returns_R.tolist(), strict=True)
    )
    yield f"\nthe game {end} after {number} moves: {gains}"


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
