"""FusedGame: the rules of a game for a whole batch at once, on tensors of any device.

Shapes: B games, O features of an observation, A actions, R roles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError, nearest

State = dict[str, Tensor]
"""The full state of a batch of games: named tensors, each with one row per game."""


@dataclass(frozen=True)
class Moves:
    """A discrete action space of `count` moves; a batch of actions is (B,) integers."""

    count: int


@dataclass(frozen=True)
class Bounds:
    """A continuous action space between two bounds; a batch of actions is (B, len(low)) floats."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class Step(NamedTuple):
    """The result of a move: the next state and the rewards."""

    state: State
    rewards: Tensor
    """(B, R) the reward of each role, in the order of the roles; float32."""


class FusedGame(ABC):
    """The rules of a game, as functions from a batch of states to a batch of states.

    The roles move in turn, in the order of `roles`, all games of a batch together. A single-player game has
    one role; a two-player game has two, such as host and agent, or first and second. The functions draw
    from no generator but the one they are given, change no tensor in place, and read no tensor value on the
    host, so that a whole rollout can be captured in a CUDA graph.

    An observation is one row of floats. The legal moves can be computed from that row, so a replay buffer
    needs no masks.
    """

    roles: tuple[str, ...]
    """The roles, in the order of their moves."""
    is_symmetric: bool = False
    """Whether each role observes the game from its own side, so that one network can play them all."""
    host_wins_by_ending: bool = False
    """Whether every end is a win of the host: `fused_dqn` then evaluates by rho, how soon games end,
    otherwise by the rewards of each role.
    """
    starts_remedy: str = "let reset return states that are not over"
    """The remedy an error message suggests when all games that `reset` returns are over."""

    @abstractmethod
    def actions(self, role: str) -> Moves | Bounds:
        """Return the action space of this role."""

    @abstractmethod
    def observation_size(self, role: str) -> int:
        """Return the number of features this role observes."""

    @abstractmethod
    def reset(self, games: int, generator: torch.Generator) -> State:
        """Return a batch of new games, on the generator's device."""

    @abstractmethod
    def observe(self, state: State, role: str) -> Tensor:
        """Return (B, O) float features: the observation of this role."""

    def observe_as(self, state: State, role: str, *, width: int, dtype: torch.dtype) -> Tensor:
        """Return `observe` in another dtype, padded with columns of zeros up to the width.

        Tensor cores read rows of certain widths and types only; a game may write them directly.
        """
        obs_BO = self.observe(state, role).to(dtype)
        missing = width - obs_BO.shape[1]
        return torch.nn.functional.pad(obs_BO, (0, missing)) if missing else obs_BO

    def legal(self, obs_BO: Tensor, role: str) -> Tensor | None:
        """Return (B, A) the mask of legal moves, computed from the observation; None where every action is
        legal."""
        return None

    @abstractmethod
    def play(self, state: State, role: str, actions: Tensor) -> Step:
        """Return the result of legal actions; the result for finished games is ignored."""

    @abstractmethod
    def done(self, state: State) -> Tensor:
        """Return (B,) whether each game has terminated by its rules."""

    def truncated(self, state: State) -> Tensor | None:
        """Return (B,) whether each game was truncated; None where games are never truncated."""
        return None

    def opponents(self, role: str) -> tuple[str, ...]:
        """Return the kinds of scripted players of this role, without keys, against which the other role is
        evaluated."""
        return "random", "choose_first"

    def named(self, obs_BO: Tensor, role: str) -> Tensor | dict[str, Tensor]:
        """Return an observation in its natural form: a dict of named views where it has several parts."""
        return obs_BO

    def text(self, state: State, game: int) -> str:
        """Return one game of the batch as text; waits for the device."""
        return "\n".join(f"{name} {value[game].tolist()}" for name, value in state.items())

    def told(self, role: str, action: Tensor) -> str:
        """Return one action of a role as text; waits for the device."""
        return str(action.tolist())

    def over(self, state: State) -> Tensor:
        """Return (B,) whether each game is over, terminated or truncated."""
        done_B, truncated_B = self.done(state), self.truncated(state)
        return done_B if truncated_B is None else done_B | truncated_B

    def step(self, state: State, role: str, actions: Tensor) -> Step:
        """Return the result of the actions; a game that is over does not change, and its rewards are 0."""
        over_B = self.over(state)
        after, rewards_BR = self.play(state, role, actions)
        kept = {name: where(over_B, state[name], value) for name, value in after.items()}
        return Step(kept, rewards_BR.masked_fill(over_B.unsqueeze(1), 0.0))

    def restart(self, state: State, generator: torch.Generator) -> State:
        """Return the state with every game that is over replaced by a new one."""
        over_B = self.over(state)
        fresh = self.reset(len(over_B), generator)
        return {name: where(over_B, fresh[name], value) for name, value in state.items()}

    def check_actions(self, state: State, role: str, actions: Tensor) -> None:
        """Raise LudusError unless these are legal actions; waits for the device."""
        self.check_role(role)
        over_B = self.over(state)
        self.check_form(role, actions, games=len(over_B))
        what = self.actions(role)
        if isinstance(what, Bounds):
            low_A, high_A = (actions.new_tensor(side) for side in (what.low, what.high))
            wrong_B = ~(actions.isfinite() & (actions >= low_A) & (actions <= high_A)).all(1)
        else:
            wrong_B = (actions < 0) | (actions >= what.count)
            legal_BA = self.legal(self.observe(state, role), role)
            if legal_BA is not None:
                places_B = actions.long().clamp(0, what.count - 1)
                wrong_B = wrong_B | ~legal_BA.gather(1, places_B.unsqueeze(1)).squeeze(1)
        wrong_B = wrong_B & ~over_B
        if wrong_B.any():
            first = int(wrong_B.int().argmax())
            remedy = "choose among what game.legal(observation, role) says"
            if isinstance(what, Bounds):
                remedy = f"give numbers from {list(what.low)} to {list(what.high)}"
            raise LudusError(
                f"the {role} of {type(self).__name__} played {actions[first].tolist()} in game {first},"
                f" which is illegal there; {remedy}"
            )

    def check_form(self, role: str, actions: object, *, games: int) -> None:
        """Raise LudusError unless this is a tensor of actions for this many games; does not wait for the
        device."""
        what, name = self.actions(role), f"the {role} of {type(self).__name__}"
        shape = (games,) if isinstance(what, Moves) else (games, len(what.low))
        if not isinstance(actions, Tensor):
            raise LudusError(
                f"{name} gave a {type(actions).__name__}; give a tensor of {shape}, an action for each game"
            )
        if tuple(actions.shape) != shape:
            raise LudusError(
                f"{name} gave actions of shape {tuple(actions.shape)}; give {shape}, one for each game"
            )
        is_number = actions.is_floating_point()
        if isinstance(what, Bounds) and not is_number:
            raise LudusError(f"{name} gave {actions.dtype} actions; give floats")
        is_whole = not (is_number or actions.is_complex() or actions.dtype == torch.bool)
        if isinstance(what, Moves) and not is_whole:
            raise LudusError(f"{name} gave {actions.dtype} actions; give whole numbers")

    def check_role(self, role: str) -> None:
        """Raise ConfigError unless the role exists."""
        if role not in self.roles:
            known = nearest(role, self.roles)
            raise ConfigError(
                f"{type(self).__name__} has no role '{role}', but {', '.join(self.roles)}.{known}"
            )


def where(is_so_B: Tensor, then: Tensor, otherwise: Tensor) -> Tensor:
    """Return the rows of one tensor where the condition holds for the game, of the other elsewhere."""
    return torch.where(is_so_B.view(-1, *[1] * (then.ndim - 1)), then, otherwise)


def check_games(games: int) -> None:
    """Raise ConfigError unless this many games can be played."""
    if games < 1:
        raise ConfigError(f"a batch of {games} games was asked for; use 1 or more")
