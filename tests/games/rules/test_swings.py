"""Pendulum and Acrobot on tensors are gymnasium's, step for step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from ludus.games.elementwise import ElementwiseGame
from ludus.games.game import Bounds, Moves
from ludus.games.rules.acrobot import Acrobot, wrap
from ludus.games.rules.pendulum import Pendulum

PRECISE = [(torch.float64, 1e-11), (torch.float32, 1e-3)]


def env(name: str, seed: int) -> Any:
    made = gymnasium.make(name).unwrapped
    made.reset(seed=seed)
    return made


def at(game: ElementwiseGame, numbers: Any) -> dict[str, torch.Tensor]:
    """Return one game that stands where these numbers say."""
    state = game.start(torch.zeros(game.num_uniforms, 1))
    return {**state, "numbers": torch.tensor(np.array(numbers), dtype=game.dtype).unsqueeze(0)}


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISE)
def test_the_pendulum_goes_the_way_of_gymnasiums(dtype: torch.dtype, tolerance: float) -> None:
    game = Pendulum(max_steps=200, dtype=dtype)
    assert game.actions("player") == Bounds((-2.0,), (2.0,))
    for episode in range(6):
        theirs = env("Pendulum-v1", episode)
        state = at(game, theirs.state)
        torques = np.random.default_rng(episode)
        for _ in range(60 if dtype == torch.float64 else 15):
            # Torques beyond the bounds are clipped, as they are there.
            torque = torques.uniform(-3, 3)
            obs, reward, _, _, _ = theirs.step([torque])
            state, rewards = game.step(state, "player", torch.tensor([[torque]], dtype=dtype))
            assert np.abs(state["numbers"].numpy() - theirs.state).max() <= tolerance
            assert np.abs(game.observe(state, "player").numpy() - obs).max() <= max(tolerance, 1e-5)
            assert abs(float(rewards) - reward) <= max(tolerance, 1e-5)
            assert not game.done(state)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISE)
def test_the_acrobot_goes_the_way_of_gymnasiums(dtype: torch.dtype, tolerance: float) -> None:
    game, ends = Acrobot(max_steps=500, dtype=dtype), 0
    assert game.actions("player") == Moves(3)
    for episode in range(6):
        theirs = env("Acrobot-v1", episode)
        theirs.state = np.random.default_rng(episode).uniform(-3, 3, 4) * [1, 1, 2, 4]
        state = at(game, theirs.state)
        torques = np.random.default_rng(episode)
        for _ in range(60 if dtype == torch.float64 else 6):
            action = int(torques.integers(3))
            obs, reward, is_done, _, _ = theirs.step(action)
            state, rewards = game.step(state, "player", torch.tensor([action]))
            assert np.abs(state["numbers"].numpy() - theirs.state).max() <= tolerance
            assert np.abs(game.observe(state, "player").numpy() - obs).max() <= max(tolerance, 1e-5)
            assert float(rewards) == reward
            assert bool(game.done(state)) == is_done
            ends += is_done
            if is_done:
                break
    assert ends >= (3 if dtype == torch.float64 else 1)


def test_new_games_begin_where_gymnasiums_do() -> None:
    draws = torch.Generator().manual_seed(0)
    for game, reach in ((Pendulum(max_steps=9), [np.pi, 1.0]), (Acrobot(max_steps=9), [0.1] * 4)):
        numbers = game.reset(20_000, draws)["numbers"]
        for side in (numbers.amax(0), -numbers.amin(0)):
            torch.testing.assert_close(side, torch.tensor(reach).float(), rtol=1e-2, atol=0)
        torch.testing.assert_close(
            numbers.std(0), torch.tensor(reach).float() / 3**0.5, rtol=0.02, atol=0
        )


def test_no_pendulum_spins_faster_than_gymnasiums_may() -> None:
    game = Pendulum(max_steps=200, dtype=torch.float64)
    for spin, torque in ((7.9, 2.0), (-7.9, -2.0)):
        theirs = env("Pendulum-v1", 0)
        theirs.state = np.array([spin / 7.9, spin])
        state, _ = game.step(at(game, theirs.state), "player", torch.tensor([[torque]]).double())
        theirs.step([torque])
        assert np.abs(state["numbers"].numpy() - theirs.state).max() < 1e-12
        assert abs(theirs.state[1]) == 8.0


def test_an_angle_is_wrapped_however_far_a_step_has_turned_it() -> None:
    angles = torch.tensor([-10.0, -9.0, -4.0, -3.0, 0.0, 3.0, 4.0, 9.0, 10.0], dtype=torch.float64)
    turns = torch.tensor([2, 1, 1, 0, 0, 0, -1, -1, -2])
    torch.testing.assert_close(wrap(angles), angles + turns * 2 * np.pi)


def test_the_acrobots_spins_are_bounded_as_gymnasiums_are() -> None:
    game = Acrobot(max_steps=500, dtype=torch.float64)
    theirs = env("Acrobot-v1", 0)
    theirs.state = np.array([0.1, 0.2, 12.5, -28.2])
    state, _ = game.step(at(game, theirs.state), "player", torch.tensor([0]))
    theirs.step(0)
    assert np.abs(state["numbers"].numpy() - theirs.state).max() < 1e-11
