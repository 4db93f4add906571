"""Play games between players to the end, move by move, and describe them as text.

Shapes: B games, R roles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.core.errors import Interrupted
from ludus.games.game import FusedGame, State
from ludus.games.player import Player, ask, begin

# Checking whether all games are over waits for a GPU, so there it is not done at every turn.
_ASKED_EVERY = {"cuda": 8}


class Moment(NamedTuple):
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
) -> Iterator[Moment]:
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
            yield Moment(role, actions, state, after, rewards_BR, over_B)
            state = after


def told(
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
