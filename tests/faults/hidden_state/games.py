"""Games, players and rewards that keep something."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

import ludus
from ludus.games.game import State
from ludus.games.rules.tic_tac_toe import TicTacToe
from ludus.games.trainers.fused_dqn import DQNTrainer
from tests.faults.hidden_state.case import case
from tests.games.dqn.small import small_dqn
from tests.games.ppo.small import SELF_PLAY, small_ppo


@ludus.register("game", "tests_hiding")
class Hiding(TicTacToe):
    """Tic-tac-toe in which the first cell is taken in some games, as what it keeps says."""

    class Config(ludus.StrictConfig):
        """How it keeps what it keeps."""

        kind: Literal["tests_hiding"]
        """A game of one's own."""
        way: Literal["attribute", "generator", "class", "iterator"]
        """Where it keeps something."""

    total: ClassVar[list[int]] = [0]

    def __init__(self, way: str) -> None:
        super().__init__()
        self.num_resets, self.way = 0, way
        self.source = torch.Generator().manual_seed(0)
        self.numbers = iter(range(1000))

    def _kept(self) -> int:
        match self.way:
            case "attribute":
                self.num_resets += 1
                return self.num_resets
            case "generator":
                return int(torch.randint(6, (1,), generator=self.source))
            case "class":
                self.total[0] += 1
                return self.total[0]
        return next(self.numbers)

    def reset(self, games: int, generator: torch.Generator) -> State:
        state = super().reset(games, generator)
        first = next(iter(state))
        taken = torch.zeros_like(state[first])
        taken[: self._kept() % games] = 1
        return {**state, first: state[first] | taken}


@ludus.register("game", "tests_saved")
class Saved(Hiding):
    """Says what it keeps, so that it is saved."""

    class Config(ludus.StrictConfig):
        """How it keeps what it keeps."""

        kind: Literal["tests_saved"]
        """A game of one's own."""
        way: Literal["attribute"]
        """Where it keeps something."""

    def state_dict(self) -> dict[str, Any]:
        return {"num_resets": self.num_resets}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.num_resets = state["num_resets"]


def with_game(way: str, path: Path, *, kind: str = "tests_hiding") -> Any:
    Hiding.total[:] = [0]
    section = {"kind": kind, "way": way}
    return ludus.build_trainer(small_ppo(**{**SELF_PLAY, "game": section}, max_rounds=4))


KEPT = {
    "attribute": "num_resets", "generator": "source", "class": "total", "iterator": "numbers"
}  # fmt: skip
for way, words in KEPT.items():
    case(f"game: {way}", "watcher", words)(partial(with_game, way))
case("game: with a state_dict", "harmless")(partial(with_game, "attribute", kind="tests_saved"))


class First:
    """Plays the first legal move, or the last one where `odd` says so."""

    def odd(self) -> bool:
        raise NotImplementedError

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        assert legal_BA is not None
        first, last = legal_BA.int().argmax(1), 2 - legal_BA.flip(1).int().argmax(1)
        return torch.where(legal_BA.any(1), last if self.odd() else first, -1)


class CountingPlayer(First):
    asked = 0

    def odd(self) -> bool:
        self.asked += 1
        return self.asked % 3 == 0


class SlottedPlayer(First):
    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = 0

    odd = CountingPlayer.odd


class TaughtPlayer(First):
    def __init__(self) -> None:
        self.optimizer = torch.optim.SGD([torch.zeros(2)], lr=0.1, momentum=0.9)

    def odd(self) -> bool:
        (weight,) = self.optimizer.param_groups[0]["params"]
        weight.grad = torch.ones(2)
        self.optimizer.step()
        return bool(self.optimizer.state[weight]["momentum_buffer"][0] > 5)


class DrawingPlayer(First):
    def __init__(self) -> None:
        self.coins = (torch.rand(1, generator=g) > 0.5 for g in [torch.Generator()] * 1000)

    def odd(self) -> bool:
        return bool(next(self.coins))


def played(player: Any) -> Any:
    changes = {"engine": "eager", "agent": None, "opponent": "given", "max_rounds": 4}
    return DQNTrainer(small_dqn(**changes), agent_net=player)


@case("player: a count in an attribute", "watcher", "asked")
def counting_player(path: Path) -> Any:
    return played(CountingPlayer())


@case("player: a count in a slot", "watcher", "asked")
def slotted_player(path: Path) -> Any:
    return played(SlottedPlayer())


@case("player: an optimizer", "watcher", "optimizer")
def taught_player(path: Path) -> Any:
    return played(TaughtPlayer())


@case("player: a generator that yields", "watcher", "coins")
def drawing_player(path: Path) -> Any:
    return played(DrawingPlayer())


@case("rewards: a function with a closure", "watcher", "count")
def rewards(path: Path) -> Any:
    count = [0]

    def reward(role: str, obs: Any, next_obs: Any, dones: Tensor) -> Tensor:
        count[0] += 1
        return dones.float() * count[0]

    return DQNTrainer(small_dqn(engine="eager", max_rounds=4), reward_func=reward)
