"""Every game keeps the contract, and the contract catches each game that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.games.game import Bounds, FusedGame, Moves, State, Step, check_games
from ludus.testing.games import check_game
from tests.games.sections import game_of, hironaka

SHIPPED: dict[str, Callable[[], FusedGame]] = {
    "hironaka": lambda: hironaka(),
    "hironaka, rescaled": lambda: hironaka(dimension=4, scale_observation=True),
    "hironaka, by vertices": lambda: hironaka(polytope="vertices", max_num_points=4),
    "connect_four": lambda: game_of(kind="connect_four"),
    "tic_tac_toe": lambda: game_of(kind="tic_tac_toe"),
    "cartpole": lambda: game_of(kind="cartpole", max_steps=40),
    "pendulum": lambda: game_of(kind="pendulum", max_steps=20),
    "acrobot": lambda: game_of(kind="acrobot", max_steps=20),
}


@pytest.mark.covers("001-M7")
@pytest.mark.parametrize("name", SHIPPED)
def test_every_game_keeps_the_contract(name: str) -> None:
    check_game(SHIPPED[name])


class Race(FusedGame):
    """Two runners step 1 or 2 cells; who reaches cell 9 first wins. Who stands on 3 must step 2."""

    roles = ("near", "far")

    def actions(self, role: str) -> Moves:
        self.check_role(role)
        return Moves(2)

    def observation_size(self, role: str) -> int:
        self.check_role(role)
        return 2

    def reset(self, games: int, generator: torch.Generator) -> State:
        check_games(games)
        return {"cells": torch.randint(3, (games, 2), generator=generator)}

    def observe(self, state: State, role: str) -> Tensor:
        return state["cells"].roll(self.roles.index(role), 1).float()

    def legal(self, obs_BO: Tensor, role: str) -> Tensor | None:
        return torch.stack([obs_BO[:, 0] != 3, obs_BO[:, 0] >= 0], 1)

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        seat = self.roles.index(role)
        steps = torch.zeros_like(state["cells"])
        steps[:, seat] = actions + 1
        after = {"cells": state["cells"] + steps}
        won = self.done(after).float()
        return Step(after, torch.stack([won, -won] if seat == 0 else [-won, won], 1))

    def done(self, state: State) -> Tensor:
        return state["cells"].amax(1) >= 9


def test_a_game_of_ones_own_passes() -> None:
    check_game(Race)


class Numbers(Race):
    """Gives numbers between bounds, which are rounded."""

    def actions(self, role: str) -> Bounds:  # type: ignore[override]
        self.check_role(role)
        return Bounds((0.0,), (1.0,))

    def legal(self, obs_BO: Tensor, role: str) -> None:
        return None

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        return super().play(state, role, actions[:, 0].round().long())


def test_a_game_of_numbers_passes() -> None:
    check_game(Numbers)


def broken(**methods: Any) -> type[Race]:
    return type("Broken", (Race,), methods)


def in_place(self: Race, state: State, role: str, actions: Tensor) -> Step:
    seat = self.roles.index(role)
    state["cells"][:, seat] += actions + 1
    won = self.done(state).float()
    return Step(state, torch.stack([won, -won] if seat == 0 else [-won, won], 1))


def step_that_forgets(self: Race, state: State, role: str, actions: Tensor) -> Step:
    return self.play(state, role, actions)


def step_that_pays(self: Race, state: State, role: str, actions: Tensor) -> Step:
    after, rewards = Race.step(self, state, role, actions)
    return Step(after, rewards + 1)


def played(change: Callable[[Race, State, Step, Tensor], Step]) -> Any:
    def play(self: Race, state: State, role: str, actions: Tensor) -> Step:
        return change(self, state, Race.play(self, state, role, actions), actions)

    return play


def drawn_from_the_global_generator(self: Race, state: State, step: Step, actions: Tensor) -> Step:
    return Step({"cells": step.state["cells"] + torch.randint(2, (1,))}, step.rewards)


def with_a_peek(self: Race, state: State, step: Step, actions: Tensor) -> Step:
    return Step(step.state, step.rewards * float(step.rewards.abs().max().item() >= 0))


def with_rows_dropped(self: Race, state: State, step: Step, actions: Tensor) -> Step:
    going = ~self.done(state)
    cells = state["cells"].clone()
    cells[going] = step.state["cells"][going]
    return Step({"cells": cells}, step.rewards)


def mixing_games(self: Race, state: State, step: Step, actions: Tensor) -> Step:
    return Step(step.state, step.rewards - step.rewards.mean(0))


def not_finite(self: Race, state: State, step: Step, actions: Tensor) -> Step:
    return Step(step.state, step.rewards / step.rewards.abs())


def in_doubles(self: Race, state: State, step: Step, actions: Tensor) -> Step:
    return Step(step.state, step.rewards.double())


def losing_a_tensor(self: Race, state: State, step: Step, actions: Tensor) -> Step:
    return Step({}, step.rewards)


BROKEN: dict[str, type[Race]] = {
    "is not refused; raise a LudusError": broken(
        reset=lambda self, games, generator: {
            "cells": torch.randint(3, (games, 2), generator=generator)
        }
    ),
    "a role that there is not has actions": broken(actions=lambda self, role: Moves(2)),
    "a role that there is not sees something": broken(observation_size=lambda self, role: 2),
    "is_symmetric is said of roles": broken(
        is_symmetric=True,
        actions=lambda self, role: self.check_role(role) or Moves(2 + self.roles.index(role)),
    ),
    "give it one row for each of the 48 games": broken(
        reset=lambda self, games, generator: {
            **Race.reset(self, games, generator),
            "turn": torch.zeros(check_games(games) or 1),
        }
    ),
    "give floats of shape": broken(observe=lambda self, state, role: state["cells"]),
    "sees a number that is not finite": broken(
        observe=lambda self, state, role: state["cells"] / 0.0
    ),
    "legal returns torch.int64": broken(
        legal=lambda self, obs_BO, role: torch.ones(len(obs_BO), 2).long()
    ),
    "the near has no legal move in game": broken(
        legal=lambda self, obs_BO, role: (obs_BO[:, :1] < 4).expand(-1, 2)
    ),
    "the illegal move -1 of the near is not refused": broken(
        check_actions=lambda self, state, role, actions: None
    ),
    "done returns torch.float32": broken(
        done=lambda self, state: (state["cells"].amax(1) >= 9).float(),
        over=lambda self, state: state["cells"].amax(1) >= 9,
    ),
    "a move of the near changed the state that was given": broken(play=in_place),
    "a game went on when over": broken(step=step_that_forgets),
    "a reward was given for a game that was over": broken(step=step_that_pays),
    "the same seed and moves lead to other states": broken(
        reset=lambda self, games, generator: {
            "cells": torch.randint(3, (check_games(games) or games, 2))
        }
    ),
    "a game depends on the other games of its batch": broken(play=played(mixing_games)),
    "gave a reward that is not finite": broken(play=played(not_finite)),
    "rewards are torch.float64": broken(play=played(in_doubles)),
    r"a move of the near left \[\] of the state": broken(
        play=played(losing_a_tensor), step=played(losing_a_tensor)
    ),
    "a move of the near reads a number of a tensor on the host": broken(play=played(with_a_peek)),
    "reads a number of a tensor on the host": broken(play=played(with_rows_dropped)),
    "no game was over after 60 moves": broken(
        done=lambda self, state: state["cells"].amax(1) >= 9000
    ),
}


@pytest.mark.parametrize("told", BROKEN)
def test_each_broken_promise_is_caught(told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_game(BROKEN[told])


def test_a_move_that_draws_from_a_generator_it_was_not_given_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"depends on the other games|other states"):
        check_game(broken(play=played(drawn_from_the_global_generator)))


def test_a_refusal_that_does_not_say_where_is_caught() -> None:
    from ludus.core.errors import LudusError

    def check_actions(self: Race, state: State, role: str, actions: Tensor) -> None:
        if (actions < 0).any():
            raise LudusError("illegal")

    with pytest.raises(AssertionError, match=r"does not name .*'near', 'game 0'"):
        check_game(broken(check_actions=check_actions))
