"""Running moments are those of all the data; what is published stays while a rollout is learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus.rl.normalise import Normaliser, RunningMoments
from tests.rl.small import NORMALISE, small

CPU = torch.device("cpu")


def normaliser(**changes: Any) -> Normaliser:
    options = {"observations": True, "rewards": True, "clip": 10.0, "gamma": 0.9, "device": CPU}
    return Normaliser((3,), 2, **(options | changes))


def test_moments_gathered_in_pieces_are_those_of_the_whole() -> None:
    """Far from zero, where a sum of squares would lose every digit."""
    data = np.random.default_rng(0).normal(1e6, [1e-2, 1.0, 30.0], size=(500, 3))
    moments = RunningMoments((3,))
    for piece in np.split(data, [1, 2, 10, 300]):
        moments.gather(piece)
    assert moments.count == 500
    np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, data.var(0), rtol=1e-6)


def test_observations_come_out_with_mean_0_and_deviation_1() -> None:
    own = normaliser()
    data = np.random.default_rng(0).normal(5, [0.1, 1, 9], size=(400, 3)).astype(np.float32)
    for start in range(0, 400, 2):
        own.gather_observations(data[start : start + 2])
    found = own.obs(torch.from_numpy(data)).numpy()
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(found.std(0), 1, atol=1e-3)
    # What acts in NumPy sees what learns in torch.
    np.testing.assert_allclose(own.numpy_obs(data), found, atol=1e-6)


def test_far_numbers_are_clipped() -> None:
    own = normaliser(clip=2.0)
    own.gather_observations(np.array([[0, 0, 0], [1, 1, 1]], np.float32))
    far = np.array([[1e6, -1e6, 0.5]], np.float32)
    assert own.numpy_obs(far).tolist() == [[2, -2, 0]]
    assert own.obs(torch.from_numpy(far)).tolist() == [[2, -2, 0]]
    assert own.rewards(torch.tensor([1e6, -1e6])).tolist() == [2, -2]


def test_rewards_are_divided_by_the_deviation_of_discounted_returns() -> None:
    own, generator = normaliser(observations=False), np.random.default_rng(0)
    returns, seen = np.zeros(2), []
    for step in range(50):
        rewards, ended = generator.normal(3, 2, size=2), np.array([step % 7 == 6, False])
        own.gather_rewards(rewards, ended)
        returns = 0.9 * returns + rewards
        seen.append(returns.copy())
        returns[ended] = 0
    assert own.reward_scale == 1
    own.gather_observations(np.zeros((2, 3), np.float32))
    np.testing.assert_allclose(own.reward_scale.item(), 1 / np.std(seen), rtol=1e-5)
    assert own.rewards(torch.tensor([1.0])).item() == own.reward_scale.item()


def test_what_is_not_asked_for_is_left_alone() -> None:
    own = normaliser(observations=False, rewards=False, clip=1.0)
    own.gather_rewards(np.array([100.0, 3.0]), np.array([False, True]))
    own.gather_observations(np.full((2, 3), 7, np.float32))
    obs, rewards = torch.full((2, 3), 50.0), torch.full((2,), 50.0)
    assert own.obs(obs) is obs
    assert own.rewards(rewards) is rewards
    assert own.numpy_obs(obs.numpy()).tolist() == obs.tolist()


def test_a_number_that_never_changes_stays_finite() -> None:
    own = normaliser()
    for _ in range(3):
        own.gather_observations(np.full((2, 3), 4, np.float32))
    assert own.numpy_obs(np.full((1, 3), 4, np.float32)).tolist() == [[0, 0, 0]]
    assert np.isfinite(own.numpy_obs(np.full((1, 3), 4.001, np.float32))).all()


def test_ppo_sees_a_rollout_as_it_was_when_it_was_made(tmp_path: Path) -> None:
    """New moments count from the next rollout on, and then they are those of all before it."""

    class Watching:
        def __init__(self, trainer: Any) -> None:
            self.trainer, self.seen = trainer, []
            self.data: list[np.ndarray] = []

        def before_collect(self) -> None:
            self.data.append(self.trainer.replay_buffer.obs.flatten(0, 1).numpy().copy())

        def after_collect(self) -> None:
            self.seen.append([self.trainer.agent.normaliser.shift.clone()])

        def after_train_step(self) -> None:
            self.seen[-1].append(self.trainer.agent.normaliser.shift.clone())

    trainer: Any = ludus.build_trainer(small("ppo", normalise=NORMALISE))
    watching = Watching(trainer)
    trainer.add(watching)
    trainer.fit(root=str(tmp_path))
    assert len(watching.seen) == 6
    for epoch, shifts in enumerate(watching.seen):
        assert len(shifts) == 1 + 6
        assert all(shift.equal(shifts[0]) for shift in shifts)
        if epoch:
            # The first of the data is the empty buffer before the first rollout.
            whole = np.concatenate(watching.data[1 : epoch + 1]).astype(np.float64)
            np.testing.assert_allclose(shifts[0].numpy(), whole.mean(0), rtol=1e-4, atol=1e-6)


def test_dqn_counts_every_observation_it_has_acted_on(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("dqn", normalise=NORMALISE))
    result = trainer.fit(root=str(tmp_path))
    assert trainer.agent.normaliser._observed.count == result.counters["env_steps"]


@pytest.mark.parametrize("kind", ["dqn", "ppo"])
def test_the_return_of_an_episode_that_was_cut_does_not_go_on_in_the_next(
    tmp_path: Path, kind: str
) -> None:
    trainer: Any = ludus.build_trainer(small(kind, normalise=NORMALISE))
    trainer.prepare(max_steps=None)
    own = trainer.agent.normaliser
    for _ in range(2):
        trainer.sampler.sample_and_push(trainer.agent, trainer.replay_buffer)
    assert (own._returns_N > 1).all()
    trainer.env.cut[0] = True
    trainer.sampler.drop_cut_episodes()
    assert own._returns_N[0] == 0
    assert (own._returns_N[1:] > 1).all()
    trainer.env.close()
