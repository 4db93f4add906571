"""Envs stepped together: shapes, seeds, ends of episodes and masks."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ludus.core.errors import LudusError
from ludus.envs.vector import VectorEnv, make_vector_env
from ludus.seeds import derive
from tests.rl.random_walks import RandomWalk, gym_config, walk_config


def walks(num_envs: int = 3, *, length: int = 5, seed: int = 0, name: str = "env") -> VectorEnv:
    return make_vector_env(walk_config(length=length), num_envs, seed, name)


# Stepping


@pytest.mark.covers("000-S8")
def test_a_vector_of_envs_does_what_each_env_does_alone() -> None:
    vector = make_vector_env(gym_config("CartPole-v1"), 3, seed=7)
    vector.reset()
    alone = [gymnasium.make("CartPole-v1") for _ in range(3)]
    episodes = [0, 0, 0]
    obs = [env.reset(seed=derive(7, f"env/{i}", 0) % 2**31)[0] for i, env in enumerate(alone)]
    random = np.random.default_rng(1)
    num_ends = 0
    for _ in range(120):
        assert np.array_equal(vector.obs, np.stack(obs))
        actions = random.integers(2, size=3)
        vector.step(actions)
        for i, env in enumerate(alone):
            found, reward, terminated, truncated, _ = env.step(int(actions[i]))
            assert np.array_equal(vector.next_obs[i], found)
            assert vector.rewards[i] == reward
            assert (vector.terminated[i], vector.truncated[i]) == (terminated, truncated)
            if terminated or truncated:
                num_ends += 1
                episodes[i] += 1
                found = env.reset(seed=derive(7, f"env/{i}", episodes[i]) % 2**31)[0]
            obs[i] = found
        assert vector.has_ended == bool((vector.terminated | vector.truncated).any())
    assert num_ends > 3


@pytest.mark.covers("004-S2")
def test_an_episode_that_ends_shows_its_last_observation_and_begins_the_next() -> None:
    # The step that ends an episode also gives the first observation of the next.
    vector = walks(2, length=3)
    vector.reset()
    first = vector.obs.copy()
    for number in range(1, 4):
        vector.step(np.zeros(2, np.int64))
        assert vector.has_ended == (number == 3)
    assert vector.terminated.all()
    assert not vector.truncated.any()
    assert not np.array_equal(vector.obs, vector.next_obs)
    assert not np.array_equal(vector.obs, first)
    vector.step(np.zeros(2, np.int64))
    assert not vector.has_ended
    assert not vector.terminated.any()
    assert np.isnan(vector.successes).all()
    assert np.array_equal(vector.obs, vector.next_obs)


@pytest.mark.covers("004-S2", "004-D11")
def test_truncation_is_not_termination() -> None:
    # That is, is_terminated and is_truncated are separate.
    vector = make_vector_env(gym_config("Pendulum-v1", max_episode_steps=4), 2, seed=0)
    vector.reset()
    for _ in range(4):
        vector.step(np.zeros((2, 1), np.float32))
    assert vector.truncated.all()
    assert not vector.terminated.any()


def test_the_arrays_are_the_same_objects_for_ever() -> None:
    vector = walks(2, length=2)
    names = ["obs", "next_obs", "rewards", "terminated", "truncated", "successes", "cut"]
    before = [getattr(vector, name) for name in names]
    vector.reset()
    for _ in range(5):
        vector.step(np.zeros(2, np.int64))
    vector.load_state_dict(vector.state_dict())
    assert all(getattr(vector, name) is array for name, array in zip(names, before, strict=True))


def test_success_is_told_for_the_episodes_that_just_ended() -> None:
    vector = walks(4, length=3)
    vector.reset()
    for _ in range(2):
        vector.step(np.zeros(4, np.int64))
        assert np.isnan(vector.successes).all()
    vector.step(np.zeros(4, np.int64))
    assert np.array_equal(vector.successes, (vector.next_obs[:, 0] > 0).astype(float))


@pytest.mark.parametrize(
    "actions", [np.zeros(3, np.int64), np.zeros((2, 1), np.int64), np.zeros(2, np.float32)]
)
def test_actions_of_the_wrong_shape_or_type_are_refused(actions: np.ndarray) -> None:
    vector = walks(2)
    vector.reset()
    with pytest.raises(LudusError, match=r"actions are .* wanted \(2,\) whole numbers"):
        vector.step(actions)


# Seeds


def seeds_of(vector: VectorEnv) -> list[list[int]]:
    """Return the seeds each env was reset with, without the look at the first that masks need."""
    vector.reset()
    for _ in range(12):
        vector.step(np.zeros(vector.num_envs, np.int64))
    all_seeds = [slot.env.unwrapped.seeds for slot in vector._slots]
    return [all_seeds[0][1:], *all_seeds[1:]]


@pytest.mark.covers("004-S2")
def test_every_episode_of_every_env_has_a_seed_of_its_own() -> None:
    # Built from a config and a seed.
    found = seeds_of(walks(3, seed=5))
    assert found == [[derive(5, f"env/{i}", e) % 2**31 for e in range(3)] for i in range(3)]
    assert len({seed for env in found for seed in env}) == 9


def test_seeds_fit_into_a_signed_integer_of_32_bits() -> None:
    """As those of many envs must, which pass them to a generator of their own."""
    found = [seed for env in seeds_of(walks(12, seed=5)) for seed in env]
    assert len(found) >= 24
    assert max(found) < 2**31
    assert min(found) >= 0


def test_a_slice_of_the_envs_is_what_the_whole_has_there() -> None:
    whole = walks(4, seed=5)
    part = make_vector_env(walk_config(length=5), 2, 5, first_index=2)
    for vector in (whole, part):
        vector.reset()
    for _ in range(12):
        whole.step(np.zeros(4, np.int64))
        part.step(np.zeros(2, np.int64))
        assert np.array_equal(part.obs, whole.obs[2:])


@pytest.mark.covers("000-D11")
def test_evaluation_never_shares_a_seed_with_training() -> None:
    training = {seed for env in seeds_of(walks(4, seed=5)) for seed in env}
    evaluation = {seed for env in seeds_of(walks(4, seed=5, name="eval")) for seed in env}
    assert not training & evaluation


@pytest.mark.covers("000-D12")
def test_seed_0_is_a_seed() -> None:
    assert seeds_of(walks(seed=0)) == seeds_of(walks(seed=0))
    assert all(seed is not None for env in seeds_of(walks(seed=0)) for seed in env)
    assert seeds_of(walks(seed=0)) != seeds_of(walks(seed=1))


@pytest.mark.covers("004-S2")
def test_an_episode_can_be_begun_by_its_number() -> None:
    # An episode can be begun by its number.
    vector = walks(2, length=1)
    vector.reset(3)
    third = vector.obs.copy()
    vector.reset()
    for _ in range(3):
        vector.step(np.zeros(2, np.int64))
    assert np.array_equal(vector.obs, third)


class Chooses(RandomWalk):
    """Takes several choices at once, and remembers the last action it was given."""

    action_space = spaces.MultiDiscrete([[2, 3], [4, 5]])

    def step(self, action):
        assert self.action_space.contains(action)
        self.last = action
        return super().step(int(action.sum()))


def test_several_choices_reach_the_env_in_its_own_shape() -> None:
    env = Chooses(walk_config())
    vector = VectorEnv([env], seed=0, name="env", title="x")
    vector.reset()
    actions = np.array([[1, 2, 3, 4]])
    vector.step(actions)
    actions[:] = 0
    assert env.last.tolist() == [[1, 2], [3, 4]]


# Masks


class Masked(RandomWalk):
    """Allows an action only at every other step."""

    action_space = spaces.Discrete(2)

    def mask(self):
        return np.array([1, self.num_steps % 2], np.int8)

    def reset(self, **kwargs):
        obs, _ = super().reset(**kwargs)
        return obs, {"action_mask": self.mask()}

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, info | {"action_mask": self.mask()}


class MaskedByMethod(RandomWalk):
    action_space = spaces.Discrete(2)

    def action_masks(self):
        return np.array([True, self.num_steps % 2 == 1])


@pytest.mark.parametrize("kind", [Masked, MaskedByMethod])
def test_masks_follow_the_observations_they_belong_to(kind) -> None:
    vector = VectorEnv([kind(walk_config(length=3))], seed=0, name="env", title="x")
    assert vector.spec.has_masks
    vector.reset()
    assert vector.masks.tolist() == [[True, False]]
    vector.step(np.array([0]))
    assert vector.masks.tolist() == vector.next_masks.tolist() == [[True, True]]
    vector.step(np.array([0]))
    vector.step(np.array([0]))
    assert vector.has_ended
    assert vector.next_masks.tolist() == [[True, True]]
    assert vector.masks.tolist() == [[True, False]]


def test_an_env_of_gymnasium_with_masks_is_seen_to_have_them() -> None:
    vector = make_vector_env(gym_config("Taxi-v4"), 2, 0)
    vector.reset()
    assert vector.spec.has_masks
    assert vector.spec.obs_shape == (500,)
    assert vector.masks.shape == (2, 6)
    for _ in range(20):
        actions = vector.masks.argmax(1)
        vector.step(actions)
    assert vector.obs.sum() == 2


def test_no_masks_no_arrays_for_them() -> None:
    vector = walks()
    assert vector.masks is None
    assert vector.next_masks is None


def test_closing_twice_does_no_harm() -> None:
    vector = walks()
    vector.reset()
    seen = vector.obs.copy()
    vector.close()
    vector.close()
    assert np.array_equal(vector.obs, seen)
