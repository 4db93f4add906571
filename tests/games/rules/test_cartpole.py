"""CartPole on tensors is gymnasium's CartPole, step for step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.games.rules.cartpole import CartPole


def cart() -> Any:
    return gymnasium.make("CartPole-v1").unwrapped


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 0.0), (torch.float32, 1e-3)])
def test_cartpole_goes_the_way_of_gymnasiums(dtype: torch.dtype, tolerance: float) -> None:
    env, game = cart(), CartPole(max_steps=500, dtype=dtype)
    ends = 0
    for episode in range(20):
        env.reset(seed=episode)
        state = game.start(torch.zeros(4, 1))
        state["numbers"] = torch.tensor(env.state, dtype=dtype).unsqueeze(0)
        pushes = np.random.default_rng(episode)
        for _ in range(200):
            action = int(pushes.integers(2))
            obs, reward, is_done, _, _ = env.step(action)
            state, rewards = game.step(state, "player", torch.tensor([action]))
            assert np.abs(state["numbers"].numpy() - env.state).max() <= tolerance
            assert np.abs(game.observe(state, "player").numpy() - obs).max() <= tolerance
            assert bool(game.done(state)) == is_done
            assert float(rewards) == reward
            if is_done:
                ends += 1
                break
    assert ends == 20


def test_new_games_begin_within_a_twentieth_of_zero() -> None:
    game = CartPole(max_steps=500)
    state = game.reset(10_000, torch.Generator().manual_seed(3))
    numbers = state["numbers"]
    assert numbers.shape == (10_000, 4)
    assert float(numbers.min()) >= -0.05
    assert float(numbers.max()) <= 0.05
    assert torch.allclose(numbers.std(0), torch.full((4,), 0.1 / 12**0.5), rtol=0.05)
    assert not game.over(state).any()


def test_a_game_that_lasts_too_long_is_truncated_and_has_not_ended() -> None:
    game = CartPole(max_steps=3)
    state = game.reset(5, torch.Generator().manual_seed(3))
    for step in range(5):
        state, rewards = game.step(state, "player", torch.tensor([step % 2] * 5))
        assert rewards.flatten().tolist() == ([1.0] * 5 if step < 3 else [0.0] * 5)
        assert game.truncated(state).all() == (step >= 2)
    assert not game.done(state).any()
    assert state["steps"].tolist() == [3] * 5


def test_a_pole_that_falls_at_the_last_step_has_ended_and_is_not_truncated() -> None:
    game = CartPole(max_steps=1)
    state = game.start(torch.full((4, 2), 0.5))
    state["numbers"] = torch.tensor([[0.0, 0.0, 0.2, 3.0], [0.0, 0.0, 0.0, 0.0]])
    state, _ = game.step(state, "player", torch.tensor([0, 0]))
    assert game.done(state).tolist() == [True, False]
    assert game.truncated(state).tolist() == [False, True]


def test_a_game_of_no_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match="'max_steps' is 0; a game needs 1 or more"):
        CartPole(max_steps=0)
