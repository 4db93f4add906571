"""What is wrong with a game of one's own is told in a sentence, before a run begins."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from ludus import StrictConfig, register
from ludus.config import registry
from ludus.core.errors import LudusError
from ludus.games import Bounds, FusedGame, Moves, Step, make_game
from ludus.games.game import State


@register("game", "wrong_somewhere")
class Countdown(FusedGame):
    """Two count down from nine; what is named by `wrong` is not as it should be."""

    class Config(StrictConfig):
        kind: Literal["wrong_somewhere"]
        """A game with a mistake."""
        wrong: str
        """Where it is."""

    roles = ("host", "agent")

    def __init__(self, *, wrong: str) -> None:
        self.wrong = wrong

    def actions(self, role: str) -> Any:
        return 2 if self.wrong == "actions" else Moves(2)

    def observation_size(self, role: str) -> Any:
        return {"size": 3, "no size": None}.get(self.wrong, 1)

    def reset(self, games: int, generator: torch.Generator) -> Any:
        left = torch.full((games,), 9)
        wrong = {"reset": left, "state": {"left": left[:1]}, "number": {"left": 9}}
        return wrong.get(self.wrong, {"left": left})

    def observe(self, state: State, role: str) -> Any:
        seen = state["left"].unsqueeze(1)
        return seen if self.wrong == "observe" else seen.float()

    def legal(self, obs_BO: Tensor, role: str) -> Any:
        if self.wrong == "legal":
            return torch.ones(len(obs_BO), 3, dtype=torch.bool)
        return torch.ones(len(obs_BO), 2, dtype=torch.bool)

    def play(self, state: State, role: str, actions: Tensor) -> Any:
        if self.wrong == "error":
            raise KeyError("right")
        after = {"left": state["left"] - 1 - actions}
        won = self.done(after).float()
        if self.wrong == "play":
            return after
        rewards = won if self.wrong == "rewards" else torch.stack([won, -won], 1)
        return Step({"left": after["left"][:2]} if self.wrong == "after" else after, rewards)

    def done(self, state: State) -> Any:
        done = state["left"] <= 0
        return done.float() if self.wrong == "done" else done

    def truncated(self, state: State) -> Any:
        return torch.tensor(False) if self.wrong == "truncated" else None


def made(wrong: str) -> FusedGame:
    return make_game(Countdown.Config(kind="wrong_somewhere", wrong=wrong))


TOLD = {
    "reset": r"the state of reset is torch.int64 of shape \(3,\); give a dict of tensors",
    "state": r"'left' in the state of reset is torch.int64 of shape \(1,\); give a tensor of 3 rows",
    "number": "'left' in the state of reset is a int; give a tensor of 3 rows, one a game",
    "actions": r"actions\('host'\) is a int; give Moves\(count\) or Bounds",
    "size": r"observe for the host is .* shape \(3, 1\); give torch.float32 of shape \(3, 3\)",
    "no size": r"observation_size\('host'\) is a NoneType; give a whole number",
    "observe": r"observe for the host is torch.int64 .*; give torch.float32 of shape \(3, 1\)",
    "legal": r"legal for the host is .* shape \(3, 3\); give torch.bool of shape \(3, 2\)",
    "error": "play failed with KeyError: 'right'; mend it, or the keys it is given",
    "play": "play is a dict; give a Step of state and rewards",
    "after": r"'left' in the state of play is torch.int64 of shape \(2,\)",
    "rewards": r"rewards is torch.float32 of shape \(3,\); give torch.float32 of shape \(3, 2\)",
    "done": r"done is torch.float32 of shape \(3,\); give torch.bool of shape \(3,\)",
    "truncated": r"truncated is torch.bool of shape \(\); give torch.bool of shape \(3,\)",
}


@pytest.mark.parametrize("wrong", TOLD)
def test_a_mistake_in_a_game_is_told_by_the_function_and_what_is_right(wrong: str) -> None:
    assert made("").roles == ("host", "agent")
    with pytest.raises(
        LudusError, match=f"the game Countdown, tried with 3 games: .*{TOLD[wrong]}"
    ):
        made(wrong)


def test_a_constructor_that_lacks_a_key_is_told() -> None:
    class Other(Countdown):
        def __init__(self, *, worng: str) -> None:
            super().__init__(wrong=worng)

    register("game", "lacks_a_key")(Other)

    class Section(StrictConfig):
        kind: Literal["lacks_a_key"]
        """A game."""
        wrong: str
        """A key."""

    with pytest.raises(
        LudusError, match=r"Other cannot be made of the keys of its Config .*'worng'"
    ):
        make_game(Section(kind="lacks_a_key", wrong=""))


def of_class(made: type[Countdown]) -> FusedGame:
    """Return the game of a class that is registered for this alone."""
    register("game", "of_class")(made)
    try:
        return make_game(Countdown.Config.model_construct(kind="of_class", wrong=""))
    finally:
        del registry._REGISTERED["game"]["of_class"]


def test_a_constructor_that_fails_is_told_with_what_it_said() -> None:
    class Fails(Countdown):
        def __init__(self, *, wrong: str) -> None:
            raise ZeroDivisionError("of nothing")

    with pytest.raises(LudusError, match=r"Fails cannot be made .*: ZeroDivisionError: of nothing"):
        of_class(Fails)


@pytest.mark.parametrize("roles", [None, (), ["host"], ("host", 2)])
def test_a_game_without_roles_is_told(roles: Any) -> None:
    with pytest.raises(LudusError, match=r"roles is a .*; give a tuple of names in the order"):
        of_class(type("Nobody", (Countdown,), {"roles": roles}))


def test_actions_that_are_numbers_are_tried_too() -> None:
    class Dial(Countdown):
        def actions(self, role: str) -> Bounds:
            return Bounds((0.0,), (1.0,))

        def play(self, state: State, role: str, actions: Tensor) -> Any:
            assert actions.shape == (3, 1)
            return super().play(state, role, actions[:, 0].long())

    register("game", "dial")(Dial)
    make_game(Countdown.Config.model_construct(kind="dial", wrong=""))
