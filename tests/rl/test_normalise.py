"""Running moments are those of all the data; what is published stays while a rollout is learned from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ludus
from ludus.rl.sampling.normalise import NormaliseConfig, Normaliser, RunningMoments
from tests.rl.known_problems import problem
from tests.rl.small import NORMALISE, small

CPU = torch.device("cpu")


def read_records(root: Path) -> list[dict[str, Any]]:
    (log,) = root.glob("*/metrics.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def normaliser(**changes: Any) -> Normaliser:
    keys = {"observations": True, "rewards": True, "clip": 10.0}
    options: dict[str, Any] = {"gamma": 0.9, "device": CPU}
    options |= {name: value for name, value in changes.items() if name not in keys}
    section = {name: changes.get(name, value) for name, value in keys.items()}
    return Normaliser(NormaliseConfig.model_construct(**section), (3,), 2, **options)


def test_moments_gathered_in_pieces_are_those_of_the_whole() -> None:
    """Far from zero, where a sum of squares would lose every digit."""
    data = np.random.default_rng(0).normal(1e6, [1e-2, 1.0, 30.0], size=(500, 3))
    moments = RunningMoments((3,))
    for piece in np.split(data, [1, 2, 10, 300]):
        moments.gather(piece)
    assert moments.count == 500
    np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, data.var(0), rtol=1e-6)


@pytest.mark.covers("002-S2")
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


class Copies(TorchDispatchMode):
    """Notes, of every copy from one tensor to another, whether it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.are_waited_for: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default:
            self.are_waited_for.append(not (args[2] if len(args) > 2 else False))
        return func(*args, **(kwargs or {}))


def test_a_step_is_published_in_one_copy_that_waits_for_no_device() -> None:
    own = normaliser()
    obs = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    with Copies() as copies:
        own.gather_observations(obs)
        own.gather_rewards(np.ones(2), np.zeros(2, bool))
    assert copies.are_waited_for == [False]
    for found, noted in zip((own.shift, own.scale), own.moments, strict=True):
        assert found.numpy().tobytes() == noted.tobytes()
    shift, scale = (noted.copy() for noted in own.moments)
    noted = own.moments
    own.gather_observations(obs + 1)
    assert np.array_equal(noted, (shift, scale))
    assert not np.array_equal(noted, own.moments)


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


class Seeing:
    """Notes what the policy's network is given, and what is learned from, rollout by rollout."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.acted_on: list[list[np.ndarray]] = []
        self.learned_from: list[np.ndarray] = []
        self.raw: list[np.ndarray] = []

    def before_train(self) -> None:
        agent = self.trainer.agent
        outputs, agent._outputs = agent._outputs, lambda seen: outputs(self._noted(seen))

    def _noted(self, seen: np.ndarray) -> np.ndarray:
        if self.acted_on and len(seen) == self.trainer.config.num_envs:
            self.acted_on[-1].append(seen.copy())
        return seen

    def before_collect(self) -> None:
        self.acted_on.append([])

    def after_collect(self) -> None:
        rollout = self.trainer.replay_buffer
        width = rollout.obs[0, 0].numel()
        self.learned_from.append(rollout._rows[:, :width].numpy().copy())
        self.raw.append(rollout.obs.flatten(0, 1).numpy().copy())


def test_ppo_learns_from_a_rollout_as_it_was_seen_when_it_was_made(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("ppo", normalise=NORMALISE, evaluate_every_epochs=0))
    seeing = Seeing(trainer)
    trainer.add(seeing)
    trainer.fit(root=str(tmp_path))
    assert len(seeing.learned_from) == 6
    for acted_on, learned_from in zip(seeing.acted_on, seeing.learned_from, strict=True):
        np.testing.assert_allclose(learned_from, np.concatenate(acted_on), rtol=1e-5, atol=1e-6)


def test_an_observation_counts_before_it_is_acted_on(tmp_path: Path) -> None:
    """The first too, as in VecNormalize: nothing is ever seen as it came."""
    trainer: Any = ludus.build_trainer(small("ppo", normalise=NORMALISE, evaluate_every_epochs=0))
    seeing = Seeing(trainer)
    trainer.add(seeing)
    trainer.fit(root=str(tmp_path))
    envs = trainer.config.num_envs
    raw = np.concatenate(seeing.raw).astype(np.float64)
    seen = np.concatenate(seeing.learned_from)
    for step in (0, 1, 20, 40):
        known, rows = raw[: (step + 1) * envs], slice(step * envs, (step + 1) * envs)
        # The deviation is trusted from 32 observations on.
        scale = known.std(0) if len(known) >= 32 else 1.0
        np.testing.assert_allclose(
            seen[rows], (raw[rows] - known.mean(0)) / scale, rtol=1e-3, atol=1e-4
        )


def test_the_first_rollout_of_ppo_has_rewards_of_the_size_of_later_ones(tmp_path: Path) -> None:
    """Divided by the deviation of its own discounted returns, not by the 1 it began with."""
    changes = {"env.id": "Pendulum-v1", "rollout_steps": 60, "max_env_steps": 600}
    config = small("ppo", normalise=NORMALISE, gamma=0.9, **changes)
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    trainer.collect_rollouts()
    rollout = trainer.replay_buffer
    returns, seen = np.zeros(3), []
    for rewards, ends in zip(rollout.rewards.numpy(), rollout.truncated.numpy(), strict=True):
        returns = 0.9 * returns + rewards
        seen.append(returns)
        returns = np.where(ends, 0.0, returns)
    assert np.std(seen) > 5
    scale = trainer.agent.normaliser.reward_scale.item()
    assert scale == pytest.approx(1 / np.std(seen), rel=1e-5)
    # The last step's target: its reward, scaled, and the discounted value of what follows.
    agent, after = trainer.agent, rollout.next_obs[-1].numpy()
    values = agent.estimator.values_of(torch.from_numpy(agent.normaliser.numpy_obs(after)))
    targets = rollout._rows[:, -2].view(60, 3)[-1]
    torch.testing.assert_close(targets, rollout.rewards[-1] * scale + 0.9 * values)
    trainer.env.close()


def test_the_ratio_of_the_first_update_is_1_under_normalisation(tmp_path: Path) -> None:
    config = small("ppo", normalise=NORMALISE, num_epochs=1, minibatches=1)
    ludus.build_trainer(config).fit(root=str(tmp_path))
    for record in read_records(tmp_path):
        if "train/approx_kl" in record:
            assert record["train/approx_kl"] == pytest.approx(0, abs=1e-6)


def test_images_can_be_normalised_too(tmp_path: Path) -> None:
    cnn = {
        "kind": "cnn", "channels": [2], "kernels": [3], "strides": [2], "width": 4,
        "activation": "relu", "init": "orthogonal", "channels_last": True, "scale": 1.0,
    }  # fmt: skip
    config = small("ppo", normalise=NORMALISE, num_epochs=1, minibatches=1)
    config = config.replace(env=problem("tests_images"), network=cnn)
    ludus.build_trainer(config).fit(root=str(tmp_path))
    for record in read_records(tmp_path):
        if "train/approx_kl" in record:
            assert record["train/approx_kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_every_observation_counts_once_those_of_the_first_reset_too(
    tmp_path: Path, kind: str
) -> None:
    trainer: Any = ludus.build_trainer(small(kind, normalise=NORMALISE))
    result = trainer.fit(root=str(tmp_path))
    seen = result.counters["env_steps"] + trainer.config.num_envs
    assert trainer.agent.normaliser._observed.count == seen


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


def test_each_reward_of_an_n_step_sum_is_clipped_by_itself(tmp_path: Path) -> None:
    """Three rewards within the clip may add up to more than it; one beyond it is cut."""
    trainer: Any = ludus.build_trainer(
        small("dqn", normalise={**NORMALISE, "clip": 2.0}, n_step=3, gamma=1.0)
    )
    trainer.prepare(max_steps=None)
    own, env, buffer = trainer.agent.normaliser, trainer.env, trainer.replay_buffer
    generator = np.random.default_rng(0)
    for _ in range(40):
        own.gather_rewards(generator.normal(size=3), np.ones(3, bool))
    deviation = 1 / own.reward_scale.item()
    assert deviation == pytest.approx(1, abs=0.2)
    processor = trainer.sampler.processor
    for reward in (1.5, 1.5, 100.0):
        env.step(np.zeros(3, np.int64))
        env.rewards[:] = reward
        processor.process(np.zeros((3, 1)), env, buffer)
    assert buffer.size == 3
    batch = trainer.agent.layout.split(buffer.sample(8).rows, None)
    summed = (1.5 + 1.5) / deviation + 2.0
    torch.testing.assert_close(
        own.rewards(batch.rewards), torch.full((8,), summed), rtol=1e-4, atol=1e-4
    )
    trainer.close()


def test_a_single_reward_is_clipped_where_it_is_used() -> None:
    own = normaliser(observations=False, clip=2.0)
    for reward in np.random.default_rng(0).normal(size=(40, 2)):
        own.gather_rewards(reward, np.ones(2, bool))
    assert own.rewards(torch.tensor([100.0, -100.0])).tolist() == [2, -2]


def test_no_reward_is_clipped_before_the_deviation_is_known() -> None:
    own = normaliser(observations=False, clip=2.0, are_sums=True)
    own.gather_rewards(np.array([1000.0, 2000.0]), np.ones(2, bool))
    assert own.clipped(np.array([1000.0, 2000.0])).tolist() == [1000, 2000]


def test_noted_moments_stay_as_they_were_after_a_restore_too() -> None:
    first, other = normaliser(), normaliser()
    first.gather_observations(np.ones((4, 3)))
    other.load_state_dict(first.state_dict())
    noted = other.moments
    before = [array.copy() for array in noted]
    other.gather_observations(np.full((64, 3), 5.0))
    for array, old in zip(noted, before, strict=True):
        np.testing.assert_array_equal(array, old)
    assert not np.array_equal(other.moments[0], before[0])
