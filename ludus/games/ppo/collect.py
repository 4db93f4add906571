"""Rollouts of any game played by one network: observation, action and reward of each role until its next
turn.

In self-play a role's next observation is the one at its own next turn, and its reward is the sum of its
rewards until then. So the opponent is part of its environment: that holds for any game and any opponent,
also a network of an earlier round, where negating the opponent's value would need a zero-sum game that the
current network plays on both sides.

Shapes: T turns, B games, R roles, N = R x B sides of games, O features, A outputs, K numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.games.elementwise import is_plain
from ludus.games.game import FusedGame, State
from ludus.games.ppo.actor_critic import ActionDistribution
from ludus.games.ppo.counter_random import action_draws
from ludus.games.ppo.live import LiveGames

Policy = Callable[[Tensor, int], tuple[Tensor, Tensor | None]]
"""Takes observations of a role, and its index; returns outputs (B, A), illegal moves masked, and log_std."""


class Rollout(NamedTuple):
    """The transitions of each side of each game at each turn."""

    obs: Tensor
    """(T, N, O)"""
    actions: Tensor
    """(T, N, K)"""
    rewards: Tensor
    """(T, N) the side's reward from its move until its next turn."""
    ended: Tensor
    """(T, N) whether the game terminated before the side's next turn."""
    over: Tensor
    """(T, N) whether it terminated or was truncated before that, or was already over, so no move was made."""
    after: Tensor
    """(T, N, O) the observation at the side's next turn, or of the last position of a truncated game."""
    kept: Tensor | None
    """(T, N) whether this is a move of the current network with a known outcome; None where all are."""


class _Side:
    """One role's column of a rollout: the closed rows, and the open row of each game."""

    def __init__(self) -> None:
        self.obs: list[Tensor] = []
        self.actions: list[Tensor] = []
        self.moved: list[Tensor | None] = []
        self.rewards: list[Tensor] = []
        self.ended: list[Tensor] = []
        self.over: list[Tensor] = []
        self.after: list[Tensor] = []

    def close(self, obs_BO: Tensor) -> None:
        """Close the rows of the last turn with the role's next observation."""
        if self.obs:
            self.rewards.append(self.reward_B)
            self.ended.append(self.ended_B)
            self.over.append(~self.is_open_B)
            last_BO = self.last_BO
            self.after.append(
                obs_BO if last_BO is None else torch.where(self.is_open_B[:, None], obs_BO, last_BO)
            )

    def begin(self, obs_BO: Tensor, actions: Tensor, over_B: Tensor | None) -> None:
        """Open a row in each game that is not over."""
        self.obs.append(obs_BO)
        self.actions.append(actions if actions.ndim == 2 else actions.unsqueeze(1))
        self.reward_B = torch.zeros_like(obs_BO[:, 0])
        self.is_open_B = torch.ones_like(self.reward_B, dtype=torch.bool)
        self.ended_B = torch.zeros_like(self.is_open_B)
        self.last_BO: Tensor | None = None
        if over_B is not None:
            self.is_open_B = ~over_B
        self.moved.append(None if over_B is None else self.is_open_B)

    def update(
        self, reward_B: Tensor, done_B: Tensor, over_B: Tensor, view_BO: Tensor | None
    ) -> None:
        """Add the rewards of any role's move to the open rows, and close those of games it ended."""
        if not self.obs:
            return
        is_open_B = self.is_open_B
        self.reward_B = self.reward_B + reward_B.where(is_open_B, 0.0)
        self.ended_B = self.ended_B | (done_B & is_open_B)
        self.is_open_B = is_open_B & ~over_B
        if view_BO is not None:
            own_BO = view_BO if self.last_BO is None else self.last_BO
            self.last_BO = torch.where(is_open_B[:, None], view_BO, own_BO)


@torch.no_grad()
def collect(
    live: LiveGames,
    policy: Policy,
    distribution: ActionDistribution,
    *,
    iteration: int,
    turns: int,
    by_others_RB: Tensor | None,
) -> Rollout:
    """Play some turns of all games and return the rollout.

    by_others_RB says in which games each role is not played by the current network; None: in none.
    """
    game, is_never_over = live.game, is_plain(live.game)
    drawn_TRBK = action_draws(
        live.words(iteration, turns=turns),
        num_draws=distribution.num_draws,
        num_uniforms=game.num_uniforms if is_plain(game) else 0,
    )
    sides = [_Side() for _ in game.roles]
    for drawn_RBK, fresh in zip(drawn_TRBK, live.starts(iteration, turns), strict=True):
        # Plain elementwise games are never over at their start, so no mask is needed.
        state, over_B = live.state, None if is_never_over else game.over(live.state)
        for role, name in enumerate(game.roles):
            obs_BO = game.observe(state, name)
            outputs_BA, log_std = policy(obs_BO, role)
            actions = distribution.draw(outputs_BA, log_std, drawn_RBK[role])
            sides[role].close(obs_BO)
            sides[role].begin(obs_BO, actions, over_B)
            play = game.play if over_B is None else game.step
            state, rewards_BR = play(state, name, distribution.to_env(actions))
            live.note(rewards_BR, over_B)
            done_B = game.done(state)
            truncated_B = _cut_off(game, state, done_B)
            over_B = done_B if truncated_B is None else done_B | truncated_B
            for other, side in enumerate(sides):
                # Only a truncated game has a value after its end.
                view = None if truncated_B is None else game.observe(state, game.roles[other])
                side.update(rewards_BR[:, other], done_B, over_B, view)
        assert over_B is not None
        live.end_turn(state, over_B, fresh)
    return _rollout(game, live.state, sides, by_others_RB)


def _cut_off(game: FusedGame, state: State, done_B: Tensor) -> Tensor | None:
    """Return which games were truncated; None where none can be. A game may define only its own `over`."""
    if type(game).over is FusedGame.over and "over" not in vars(game):
        return game.truncated(state)
    return game.over(state) & ~done_B


def _rollout(
    game: FusedGame, state: State, sides: list[_Side], by_others_RB: Tensor | None
) -> Rollout:
    """Return the columns of all roles side by side, with the last rows closed as far as possible."""
    kept_RTB = []
    for role, side in enumerate(sides):
        side.close(game.observe(state, game.roles[role]))
        if not is_plain(game):
            kept_RTB.append(_kept(side, is_first=role == 0, by_others_RB=by_others_RB, role=role))

    columns = {
        name: torch.cat([torch.stack(getattr(side, name)) for side in sides], 1)
        for name in Rollout._fields
        if name != "kept"
    }
    return Rollout(**columns, kept=torch.cat(kept_RTB, 1) if kept_RTB else None)


def _kept(side: _Side, *, is_first: bool, by_others_RB: Tensor | None, role: int) -> Tensor:
    """Return which rows of a role are learned from, and cut those that depend on an unknown outcome."""
    moved = [torch.ones_like(side.is_open_B) if row is None else row for row in side.moved]
    if not is_first:
        # The role's next turn comes after the others have moved in the next rollout, so the outcome of this
        # row is unknown; the row before it still has its value, but not its advantage.
        unknown_B = side.is_open_B
        moved[-1] = moved[-1] & ~unknown_B
        side.over[-2] = side.over[-2] | unknown_B
    kept_TB = torch.stack(moved)
    return kept_TB if by_others_RB is None else kept_TB & ~by_others_RB[role]
