"""A player and a game of a user's own, as a plugin has them: `--plugin tests.games.dqn.wild_plugin`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ludus import StrictConfig, register
from ludus.games.game import Bounds, FusedGame, Moves, State, Step
from ludus.games.rules.hironaka import Hironaka


@register("player", "wild")
class Wild:
    """Picks what its config says, legal or not, and counts how often it was asked."""

    class Config(StrictConfig):
        kind: Literal["wild"]
        """A player of one's own."""
        answer: Literal["first", "last", "list"]
        """What it plays."""

    def __init__(self, config: Config, game: FusedGame, role: str) -> None:
        self.answer, self.asked = config.answer, 0

    def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Any:
        self.asked += 1
        if self.answer == "list":
            return [0] * len(obs_BO)
        if self.answer == "last":
            return torch.full((len(obs_BO),), 2)
        return torch.where(legal_BA.any(1), legal_BA.int().argmax(1), -1)


@register("game", "far")
class Far(Hironaka):
    """Hironaka's game with points at infinity."""

    class Config(StrictConfig):
        kind: Literal["far"]
        """A game of one's own."""

    def __init__(self) -> None:
        super().__init__(dimension=3, max_num_points=6, max_value=9, scale_observation=False)

    def reset(self, games: int, generator: torch.Generator) -> State:
        state = super().reset(games, generator)
        points = state["points"]
        return {**state, "points": torch.where(points > 5, torch.inf, points)}


@register("game", "pushing")
class Pushing(FusedGame):
    """The host gives a number, not one of so many moves."""

    class Config(StrictConfig):
        kind: Literal["pushing"]
        """A game of one's own."""

    roles = ("host", "agent")

    def actions(self, role: str) -> Moves | Bounds:
        return Bounds((-1.0,), (1.0,)) if role == "host" else Moves(2)

    def observation_size(self, role: str) -> int:
        return 1

    def reset(self, games: int, generator: torch.Generator) -> State:
        return {"height": torch.rand(games, generator=generator, device=generator.device)}

    def observe(self, state: State, role: str) -> Tensor:
        return state["height"].unsqueeze(1)

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        return Step(state, torch.zeros(len(actions), 2))

    def done(self, state: State) -> Tensor:
        return state["height"] > 1.0
