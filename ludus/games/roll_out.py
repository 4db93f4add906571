"""Rollouts: play a batch of games and return the transitions of one role.

Shapes: B games, T turns of the role, O features of an observation, A actions, M = T x B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ludus.core.errors import ConfigError, LudusError
from ludus.games.choose import NUM_DRAWS, choose
from ludus.games.game import FusedGame, State, check_games
from ludus.games.player import LeftAlone, Player, ValuesMoves, ask, begin, num_moves

Seen = Tensor | dict[str, Tensor]
RewardFunc = Callable[[str, Seen, Seen, Tensor], Tensor]
"""Takes role, observations, next observations and whether games ended; returns (M,) rewards."""


class Experiences(NamedTuple):
    """The transitions of a role, one row per move."""

    obs: Tensor
    """(M, O) float32: the observation when the role moved; `game.named(obs, role)` shows it by name."""
    actions: Tensor
    """(M,) int32."""
    rewards: Tensor
    """(M,) float32: the reward of the role until its next turn."""
    dones: Tensor
    """(M,) bool: whether the game terminated before the next turn."""
    next_obs: Tensor
    """(M, O) the observation at the role's next turn."""


def play_turns(
    game: FusedGame,
    players: Mapping[str, Player],
    role: str,
    state: State,
    *,
    turns: int,
    generator: torch.Generator,
    exploration_rate: float | Tensor,
    checked: Collection[str] = (),
    reward_func: RewardFunc | None = None,
) -> tuple[Experiences, Tensor]:
    """Return the transitions of some turns of a role in new games, and (M,) the mask of those that count.

    Excluded are transitions of games that were already over, and of games truncated before the role's next
    legal moves were known. Nothing waits for the device, unless actions of roles in `checked` are checked.
    Only this role explores: another's noise would become its target. The next observation is the one at its
    next turn, after the other roles have moved once.
    """
    for player in players.values():
        begin(player)
    index, count = game.roles.index(role), num_moves(game, role, who="a rollout")
    before, after = game.roles[:index], game.roles[index + 1 :]
    rate = exploration_rate
    if not isinstance(rate, Tensor):
        rate = torch.full((), rate, device=generator.device)

    def move(state: State, who: str, obs_BO: Tensor) -> tuple[State, Tensor, Tensor]:
        player, is_checked = players[who], who in checked
        if who == role and isinstance(player, ValuesMoves) and not is_checked:
            values_BA = _valued(player, game, who, obs_BO)
            actions_B = _explored(values_BA, game.legal(obs_BO, who), rate, generator)
        else:
            actions_B = ask(
                player, game, state, who, generator, seen_BO=obs_BO, is_checked=is_checked
            )
            if who == role:
                # A player without action values gets a one-hot value for the move it chose.
                values_BA = one_hot(actions_B.long(), count).float()
                actions_B = _explored(values_BA, game.legal(obs_BO, who), rate, generator)
        state, rewards_BR = game.step(state, who, actions_B)
        return state, actions_B, rewards_BR[:, index]

    for other in before:
        state, _, _ = move(state, other, game.observe(state, other))
    obs_BO, over_B = game.observe(state, role), game.over(state)
    rows, keeps = [], []
    for _ in range(turns):
        state, actions_B, rewards_B = move(state, role, obs_BO)
        for other in (*after, *before):
            state, _, more_B = move(state, other, game.observe(state, other))
            rewards_B = rewards_B + more_B
        next_obs_BO, done_B = game.observe(state, role), game.done(state)
        rows.append((obs_BO, actions_B.int(), rewards_B, done_B, next_obs_BO))
        keeps.append(~over_B & _has_sequel(game, role, state, next_obs_BO, done_B))
        obs_BO, over_B = next_obs_BO, game.over(state)
    found = Experiences(*map(torch.cat, zip(*rows, strict=True)))
    if reward_func is not None:
        found = found._replace(rewards=_own_rewards(reward_func, game, role, found))
    return found, torch.cat(keeps)


def _valued(player: ValuesMoves, game: FusedGame, role: str, obs_BO: Tensor) -> Tensor:
    with LeftAlone(f"the {role} of {type(game).__name__}", obs_BO):
        return player.values(obs_BO)


def _explored(
    values_BA: Tensor, legal_BA: Tensor | None, rate: Tensor, generator: torch.Generator
) -> Tensor:
    draws_B2 = torch.rand(len(values_BA), NUM_DRAWS, generator=generator, device=generator.device)
    return choose(values_BA, legal_BA, rate=rate, draws_B2=draws_B2)


def roll_out(
    game: FusedGame,
    players: Mapping[str, Player],
    role: str,
    *,
    games: int,
    turns: int,
    generator: torch.Generator,
    exploration_rate: float = 0.0,
    reward_func: RewardFunc | None = None,
) -> Experiences:
    """Play new games and return the transitions of a role, without those of games that were already over.

    The moves of every player are checked: an illegal one raises an error that names game, role and index.
    This waits for the device; `play_turns` does not.
    """
    check_rollout(game, players, role, games=games, turns=turns)
    with torch.no_grad():
        found, keep_M = play_turns(
            game,
            players,
            role,
            game.reset(games, generator),
            turns=turns,
            generator=generator,
            exploration_rate=exploration_rate,
            checked=game.roles,
            reward_func=reward_func,
        )
    return Experiences(*(column[keep_M] for column in found))


def check_rollout(
    game: FusedGame, players: Mapping[str, Player], role: str, *, games: int, turns: int
) -> None:
    """Raise ConfigError where this rollout cannot be played."""
    game.check_role(role)
    check_games(games)
    if turns < 1:
        raise ConfigError(f"a rollout of {turns} turns was asked for; use 1 or more")
    for name in game.roles:
        if name not in players:
            raise ConfigError(f"nobody plays the {name}; give players['{name}']")
        num_moves(game, name, who="a rollout")


def _has_sequel(
    game: FusedGame, role: str, state: State, next_obs_BO: Tensor, done_B: Tensor
) -> Tensor | bool:
    """Return where the next state is known: the game terminated, or a move is legal.

    In a game truncated before the other roles moved, there may be none: their moves are not known.
    """
    legal_BA = game.legal(next_obs_BO, role)
    if legal_BA is None or game.truncated(state) is None:
        return True
    return done_B | legal_BA.any(1)


def _own_rewards(func: RewardFunc, game: FusedGame, role: str, found: Experiences) -> Tensor:
    """Return the rewards that a script's function computes for these transitions."""
    seen, then = game.named(found.obs, role), game.named(found.next_obs, role)
    with LeftAlone("the reward function", found.obs, found.next_obs, found.dones):
        rewards = func(role, seen, then, found.dones)
    shape = tuple(found.rewards.shape)
    if not isinstance(rewards, Tensor) or tuple(rewards.shape) != shape:
        given = tuple(rewards.shape) if isinstance(rewards, Tensor) else type(rewards).__name__
        raise LudusError(
            f"the reward function gave {given} for the {role}; return a tensor of {shape}, one reward"
            " for each row"
        )
    return rewards.to(found.rewards)
