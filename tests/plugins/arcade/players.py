"""The players of a duel, and how they are evaluated with nothing but their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ludus.config import find
from ludus.nn import Learner, Sgd
from ludus.seeds import derive, forked

PLAYERS = ("first", "second")
MOVES = 3
ALWAYS = torch.ones(1, 1)
SGD = Sgd(kind="sgd", learning_rate=0.5, momentum=0.0, weight_decay=0.0, nesterov=False)


def make_players(seed: int) -> dict[str, Learner]:
    """Return a learner for each player: how much it likes to take one, two or three sticks."""
    players = {}
    for name in PLAYERS:
        with forked(derive(seed, name)):
            players[name] = Learner(nn.Linear(1, MOVES), SGD, max_grad_norm=1.0)
    return players


def preferences(learner: Learner) -> Tensor:
    """Return the logits of the moves."""
    with torch.no_grad():
        return learner(ALWAYS)[0].clone()


def step(learner: Learner, move: int, reward: float) -> Tensor:
    """Make a move that won more likely, and one that lost less; return the loss."""

    def loss_fn(network: Callable[[Tensor], Tensor]) -> tuple[Tensor, None]:
        return -reward * network(ALWAYS).log_softmax(1)[0, move], None

    return learner.step(loss_fn, torch.tensor(SGD.learning_rate))[0]


class DuelJob:
    """Lets each player, as it would always play, meet every opponent that always takes the same."""

    metrics = ("eval/first_margin", "eval/second_margin")

    def __init__(self, config: Any) -> None:
        self.config = config

    def rebuild(self) -> None:
        find("contest", self.config.game.kind)(self.config.game)

    def evaluate(
        self, weights: Mapping[str, Tensor], *, is_interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        game = find("contest", self.config.game.kind)(self.config.game)
        told = {}
        for name, sign in zip(PLAYERS, (1, -1), strict=True):
            if name in weights:
                move = int(weights[name].argmax()) + 1
                met = [
                    (move, other) if sign > 0 else (other, move) for other in range(1, MOVES + 1)
                ]
                told[f"eval/{name}_margin"] = sum(sign * game.score(*pair) for pair in met) / MOVES
        return told
