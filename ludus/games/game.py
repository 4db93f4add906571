"""FusedGame: the rules of a game for a whole batch at once, on tensors, wherever these are.

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
"""All that there is to know of a batch of games: named tensors, each with one row a game."""


@dataclass(frozen=True)
class Moves:
    """Actions that are one of `count` moves; a batch of them is (B,) whole numbers."""

    count: int


@dataclass(frozen=True)
class Bounds:
    """Actions that are numbers between two bounds; a batch of them is (B, len(low)) floats."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class Step(NamedTuple):
    """What came of a move."""

    state: State
    rewards: Tensor
    """(B, R) what each role gains by it, in the order of the roles; float32."""


class FusedGame(ABC):
    """The rules of a game, as functions from a batch of states to a batch of states.

    The roles move in turn, in the order of `roles`, all games of a batch together: one role is a game
    for one, two are host and agent, or first and second. The functions draw from no generator but
    the one they are given, change no tensor in place, and use no number of a tensor on the host, so
    that a whole rollout can be captured in a CUDA graph.

    A role sees the game as one row of floats. What is legal can be read from that row, so a replay
    buffer needs no masks.
    """

    roles: tuple[str, ...]
    """Who plays, in the order of their moves."""
    is_symmetric: bool = False
    """Whether each role sees the game from its own side, so that one network can play them all."""
    host_wins_by_ending: bool = False
    """Whether every end is a win of the host: `fused_dqn` then judges by rho, how soon games end, otherwise
    by the rewards of each role."""
    starts_remedy: str = "let reset return states that are not over"
    """What to do where all games that `reset` returns are over, for a message."""

    @abstractmethod
    def actions(self, role: str) -> Moves | Bounds:
        """Return what this role may do."""

    @abstractmethod
    def observation_size(self, role: str) -> int:
        """Return how many features this role sees."""

    @abstractmethod
    def reset(self, games: int, generator: torch.Generator) -> State:
        """Return a batch of new games, on the generator's device."""

    @abstractmethod
    def observe(self, state: State, role: str) -> Tensor:
        """Return (B, O) float features of the game as this role sees it."""

    def observe_as(self, state: State, role: str, *, width: int, dtype: torch.dtype) -> Tensor:
        """Return what `observe` does in another type, with columns of zeros up to the width.

        Matrix units read rows of some widths and types only; a game may write them at once.
        """
        obs_BO = self.observe(state, role).to(dtype)
        missing = width - obs_BO.shape[1]
        return torch.nn.functional.pad(obs_BO, (0, missing)) if missing else obs_BO

    def legal(self, obs_BO: Tensor, role: str) -> Tensor | None:
        """Return (B, A) which moves are legal for who sees this; None where every action is."""
        return None

    @abstractmethod
    def play(self, state: State, role: str, actions: Tensor) -> Step:
        """Return what comes of legal actions; what it makes of finished games is not used."""

    @abstractmethod
    def done(self, state: State) -> Tensor:
        """Return (B,) whether each game has ended by its rules."""

    def truncated(self, state: State) -> Tensor | None:
        """Return (B,) whether each game was cut off at its longest; None where games are not."""
        return None

    def opponents(self, role: str) -> tuple[str, ...]:
        """Return the kinds of scripted players, without keys, of this role by whom the other is judged."""
        return "random", "choose_first"

    def named(self, obs_BO: Tensor, role: str) -> Tensor | dict[str, Tensor]:
        """Return an observation in the form people know, as views by name where it has several pieces."""
        return obs_BO

    def text(self, state: State, game: int) -> str:
        """Return one game of the batch as people read it; this waits for the device."""
        return "\n".join(f"{name} {value[game].tolist()}" for name, value in state.items())

    def told(self, role: str, action: Tensor) -> str:
        """Return one action of a role as people read it; this waits for the device."""
        return str(action.tolist())

    def over(self, state: State) -> Tensor:
        """Return (B,) whether each game is over, ended or cut off."""
        done_B, truncated_B = self.done(state), self.truncated(state)
        return done_B if truncated_B is None else done_B | truncated_B

    def step(self, state: State, role: str, actions: Tensor) -> Step:
        """Return what comes of the actions; a game that is over stays as it is, and nobody gains by it."""
        over_B = self.over(state)
        after, rewards_BR = self.play(state, role, actions)
        kept = {name: where(over_B, state[name], value) for name, value in after.items()}
        return Step(kept, rewards_BR.masked_fill(over_B.unsqueeze(1), 0.0))

    def restart(self, state: State, generator: torch.Generator) -> State:
        """Return the state with new games in the place of those that are over."""
        over_B = self.over(state)
        fresh = self.reset(len(over_B), generator)
        return {name: where(over_B, fresh[name], value) for name, value in state.items()}

    def check_actions(self, state: State, role: str, actions: Tensor) -> None:
        """Raise LudusError unless these are legal actions; this waits for the device."""
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
        """Raise LudusError unless this is a tensor of actions for so many games; nothing waits for it."""
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
        """Raise ConfigError unless there is such a role."""
        if role not in self.roles:
            known = nearest(role, self.roles)
            raise ConfigError(
                f"{type(self).__name__} has no role '{role}', but {', '.join(self.roles)}.{known}"
            )


def where(is_so_B: Tensor, then: Tensor, otherwise: Tensor) -> Tensor:
    """Return rows of one tensor where a condition holds for the game, of the other elsewhere."""
    return torch.where(is_so_B.view(-1, *[1] * (then.ndim - 1)), then, otherwise)


def check_games(games: int) -> None:
    """Raise ConfigError unless this many games can be played."""
    if games < 1:
        raise ConfigError(f"a batch of {games} games was asked for; use 1 or more")
