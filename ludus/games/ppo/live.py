"""The running games of a run, as a part: their states, and the results of the finished ones.

Shapes: B games, R roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import ConfigError
from ludus.games.elementwise import is_plain
from ludus.games.game import FusedGame, State, where
from ludus.games.ppo.counter_random import Keys, keys_of, started, words
from ludus.seeds import derive

REMEDY = "there is nothing to play, so change what 'game' begins with"


class LiveGames:
    """A batch of games in which every finished one restarts at the end of the turn.

    All randomness is a function of the seed and the round. A game may be over at its start, except a plain
    elementwise one: nobody moves in it, it is not counted, and it restarts at the end of the turn.
    """

    def __init__(self, game: FusedGame, *, num_games: int, seed: int, device: torch.device) -> None:
        self.game = game
        self.num_games = num_games
        self.keys: Keys = keys_of(seed)
        self.device = device
        self._seed = seed
        self.state: State = self._first()
        if bool(game.over(self.state).all()):
            raise ConfigError(
                f"all {num_games} games of {type(game).__name__} are over at their start; {REMEDY}"
            )
        num_roles = len(game.roles)
        self.returns_BR = torch.zeros(num_games, num_roles, device=device)
        """The return so far of each role in each game."""
        self.lengths_B = torch.zeros(num_games, device=device)
        """The number of moves so far of each game."""
        self.totals = torch.zeros(2 + num_roles, dtype=torch.float64, device=device)
        """Of the games that ended since the last record: their number, moves, and returns by role."""

    def _first(self) -> State:
        zero = torch.zeros((), dtype=torch.int64, device=self.device)
        if is_plain(self.game):
            index_B = torch.arange(self.num_games, device=self.device)
            return started(self.game, words(self.keys.first, zero, index_B))
        return self.game.reset(self.num_games, self._generator("first", 0))

    def words(self, iteration: int, *, turns: int) -> Tensor:
        """Return (T, R, B) a random word for each move of a round."""
        shape = turns, len(self.game.roles), self.num_games
        number = torch.tensor(iteration, device=self.device)
        index = torch.arange(torch.Size(shape).numel(), device=self.device)
        return words(self.keys.step, number, index).view(shape)

    def _generator(self, name: str, iteration: int) -> torch.Generator:
        seed = derive(self._seed, f"ppo/{name}", iteration)
        return torch.Generator(self.device).manual_seed(seed)

    def starts(self, iteration: int, turns: int) -> list[State]:
        """Return a batch of new games for the end of each turn of a round."""
        if is_plain(self.game):
            words_TRB = self.words(iteration, turns=turns)
            return [started(self.game, words_RB[0]) for words_RB in words_TRB]
        source = self._generator("start", iteration)
        return [self.game.reset(self.num_games, source) for _ in range(turns)]

    def note(self, rewards_BR: Tensor, was_over_B: Tensor | None) -> None:
        """Count one move of each game that was not over."""
        self.returns_BR = self.returns_BR + rewards_BR
        self.lengths_B = self.lengths_B + (1.0 if was_over_B is None else (~was_over_B).float())

    def end_turn(self, state: State, over_B: Tensor, fresh: State) -> None:
        """Add the results of finished games to the totals, and restart them."""
        ended_B1 = (over_B & (self.lengths_B > 0)).unsqueeze(1)
        all_B = torch.cat([ended_B1.float(), self.lengths_B.unsqueeze(1), self.returns_BR], 1)
        self.totals = self.totals + all_B.masked_fill(~ended_B1, 0.0).sum(0)
        self.returns_BR = self.returns_BR.masked_fill(over_B.unsqueeze(1), 0.0)
        self.lengths_B = self.lengths_B.masked_fill(over_B, 0.0)
        self.state = {name: where(over_B, fresh[name], value) for name, value in state.items()}

    def take_metrics(self) -> dict[str, float]:
        """Return the mean results of the games that ended since the last call, and reset."""
        count, length, *returns = self.totals.tolist()
        self.totals = torch.zeros_like(self.totals)
        metrics = {"rollout/episodes": count}
        if not count:
            return metrics
        metrics["rollout/ep_len_mean"] = length / count
        if len(returns) == 1:
            return {**metrics, "rollout/ep_rew_mean": returns[0] / count}
        named = zip(self.game.roles, returns, strict=True)
        return metrics | {f"rollout/{role}_return_mean": total / count for role, total in named}

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the games and the totals not yet recorded."""
        return {"state": dict(self.state), **{name: getattr(self, name) for name in _COUNTED}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore saved games."""
        states.check_keys(state, "state", *_COUNTED)
        saved = states.mapping(state, "state")
        with states.within("state"):
            states.check_keys(saved, *self.state)
            games = {name: states.like(saved, name, own) for name, own in self.state.items()}
        counted = {name: states.like(state, name, getattr(self, name)) for name in _COUNTED}
        self.state = {name: value.to(self.device) for name, value in games.items()}
        for name, value in counted.items():
            setattr(self, name, value.to(self.device))


_COUNTED = ("returns_BR", "lengths_B", "totals")
