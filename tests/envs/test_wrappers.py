"""The wrappers a config can name: what each does, and that all of them repeat from a seed."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from ludus.config.families import listed
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from ludus.envs.config import make_env
from ludus.envs.restore import check_repeats
from ludus.envs.vector import VectorEnv, make_vector_env
from ludus.envs.wrappers._table import StickyAction
from tests.rl.random_walks import RandomWalk, RandomWalkConfig, gym_config, walk_config

pytestmark = pytest.mark.usefixtures("whole_trial")

WRAPPERS: dict[str, dict[str, Any]] = {
    "time_limit": {"max_episode_steps": 7},
    "frame_stack": {"num_frames": 3, "padding": "zero"},
    "clip_reward": {"low": -0.5, "high": 0.5},
    "scale_reward": {"scale": 0.1},
    "flatten_observation": {},
    "sticky_action": {"probability": 0.25},
    "action_repeat": {"num_repeats": 2},
}
NEED_OTHER_ENVS = {"grayscale", "resize", "rescale_action"}


def wrapped(kind: str, **keys: Any) -> gymnasium.Env:
    return make_env(walk_config(wrappers=[{"kind": kind, **keys}]))


def test_every_wrapper_is_tried_here() -> None:
    assert set(listed("wrapper")) == set(WRAPPERS) | NEED_OTHER_ENVS


@pytest.mark.parametrize(("kind", "keys"), WRAPPERS.items())
def test_a_wrapped_env_keeps_the_contract_of_gymnasium(kind: str, keys: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        # The checker advises bounded, scaled spaces, which a walk does not have.
        warnings.simplefilter("ignore")
        check_env(wrapped(kind, **keys), skip_render_check=True)


@pytest.mark.parametrize(("kind", "keys"), WRAPPERS.items())
def test_a_wrapped_env_repeats_from_its_seed(kind: str, keys: dict[str, Any]) -> None:
    assert check_repeats(walk_config(wrappers=[{"kind": kind, **keys}]), seed=0) is None


def test_a_time_limit_truncates() -> None:
    env = wrapped("time_limit", max_episode_steps=2)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_frames_are_stacked_the_newest_last() -> None:
    env = wrapped("frame_stack", num_frames=2, padding="zero")
    first, _ = env.reset(seed=0)
    second = env.step(1)[0]
    assert first.shape == (2, 3)
    assert not first[0].any()
    assert np.array_equal(second[0], first[1])


def test_rewards_are_clipped_and_scaled() -> None:
    plain = make_env(walk_config())
    clipped = wrapped("clip_reward", low=-0.5, high=0.5)
    scaled = wrapped("scale_reward", scale=3.0)
    for env in (plain, clipped, scaled):
        env.reset(seed=0)
    for _ in range(10):
        reward = plain.step(0)[1]
        assert clipped.step(0)[1] == min(max(reward, -0.5), 0.5)
        assert scaled.step(0)[1] == reward * 3.0


def test_a_reward_that_is_no_number_is_not_hidden_by_clipping(monkeypatch) -> None:
    env = wrapped("clip_reward", low=-0.5, high=0.5)
    assert np.isnan(env.reward(float("nan")))


def test_repeated_actions_add_their_rewards_and_stop_with_the_episode() -> None:
    plain = make_env(walk_config(length=5))
    env = make_env(walk_config(length=5, wrappers=[{"kind": "action_repeat", "num_repeats": 3}]))
    plain.reset(seed=0)
    env.reset(seed=0)
    for num_inner in (3, 2):
        results = [plain.step(1) for _ in range(num_inner)]
        obs, reward, terminated, _, _ = env.step(1)
        assert reward == pytest.approx(sum(result[1] for result in results))
        assert np.array_equal(obs, results[-1][0])
        assert terminated == (num_inner == 2)


class Unseeded(RandomWalk):
    """Notes its actions, and never seeds its own generator."""

    def reset(self, *, seed=None, options=None):
        self.done: list[int] = []
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.done.append(action)
        return np.zeros(3, np.float32), 0.0, False, False, {}


def sticky(probability: float) -> StickyAction:
    config = StickyAction.Config(kind="sticky_action", probability=probability)
    return StickyAction(Unseeded(walk_config()), config)


def test_sticky_actions_repeat_the_one_before_as_often_as_asked() -> None:
    env = sticky(0.25)
    env.reset(seed=0)
    for step in range(4000):
        env.step(step)
    num_stuck = sum(done != step for step, done in enumerate(env.unwrapped.done))
    assert env.unwrapped.done[0] == 0
    assert 0.22 < num_stuck / 4000 < 0.28


def test_sticky_actions_follow_the_seed_even_if_the_env_forgets_it() -> None:
    def played(env: StickyAction, seed: int) -> list[int]:
        env.reset(seed=seed)
        for step in range(50):
            env.step(step)
        return env.unwrapped.done

    env = sticky(0.5)
    assert played(env, 1) == played(sticky(0.5), 1)
    assert played(env, 1) == played(env, 1)
    assert played(env, 1) != played(env, 2)


def test_sticky_actions_do_not_shift_what_the_env_draws() -> None:
    plain = make_env(walk_config())
    env = wrapped("sticky_action", probability=0.5)
    plain.reset(seed=0)
    env.reset(seed=0)
    for _ in range(10):
        assert np.array_equal(plain.step(1)[0], env.step(1)[0])


# Those that need another env


class Images(gymnasium.Env):
    """Shows noise in colour."""

    observation_space = spaces.Box(0, 255, (8, 6, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, config: RandomWalkConfig | None = None) -> None:
        self.num_steps = 0

    def shown(self) -> np.ndarray:
        return self.np_random.integers(256, size=(8, 6, 3)).astype(np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown(), {}

    def step(self, action):
        return self.shown(), 0.0, False, False, {}


def runtime(env: gymnasium.Env, kind: str, **keys: Any) -> gymnasium.Env:
    """Put a wrapper around an env as a config would."""
    section = walk_config(wrappers=[{"kind": kind, **keys}]).wrappers[0]
    module = importlib.import_module(listed("wrapper")[kind])
    return next(
        thing for thing in vars(module).values() if getattr(thing, "kind", None) == kind
    ).make(env, section)


@pytest.mark.parametrize(("keep_channel", "shape"), [(True, (8, 6, 1)), (False, (8, 6))])
def test_images_become_grey_and_stay_bytes(keep_channel: bool, shape: tuple[int, ...]) -> None:
    env = runtime(Images(), "grayscale", keep_channel=keep_channel)
    vector = VectorEnv([env], seed=0, name="env", title="x")
    vector.reset()
    assert vector.obs.shape == (1, *shape)
    assert vector.obs.dtype == np.uint8
    vector.step(np.zeros(1, np.int64))
    saved = vector.obs.copy()
    vector.load_state_dict(vector.state_dict())
    assert np.array_equal(vector.obs, saved)
    assert vector.inexact_because() == []


def test_resizing_needs_opencv_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install opencv-python-headless"):
        runtime(Images(), "resize", height=4, width=4)


def test_images_are_resized() -> None:
    assert runtime(Images(), "resize", height=4, width=5).reset(seed=0)[0].shape == (4, 5, 3)


def test_actions_are_rescaled() -> None:
    section = gym_config("Pendulum-v1", [{"kind": "rescale_action", "low": -1.0, "high": 1.0}])
    vector = make_vector_env(section, 1, seed=0)
    assert vector.spec.action.high.tolist() == [1.0]
    plain = make_vector_env(gym_config("Pendulum-v1"), 1, seed=0)
    for env, action in ((vector, 0.5), (plain, 1.0)):
        env.reset()
        env.step(np.full((1, 1), action, np.float32))
    assert np.array_equal(vector.obs, plain.obs)
    assert check_repeats(section, seed=0) is None


class Described(RandomWalk):
    observation_space = spaces.Dict(
        place=spaces.Box(-np.inf, np.inf, (3,), np.float32), choice=spaces.Discrete(2)
    )

    def reset(self, **kwargs):
        return {"place": super().reset(**kwargs)[0], "choice": 1}, {}

    def step(self, action):
        obs, *rest = super().step(action)
        return {"place": obs, "choice": 1}, *rest


def test_flattening_makes_a_row_of_a_dict() -> None:
    vector = VectorEnv(
        [runtime(Described(walk_config()), "flatten_observation")], seed=0, name="env", title="x"
    )
    vector.reset()
    vector.step(np.zeros(1, np.int64))
    assert vector.spec.obs_shape == (5,)
    assert vector.obs[0, 3:].tolist() == [0, 1]


# What does not fit


def test_a_wrapper_that_does_not_fit_its_env_is_told() -> None:
    with pytest.raises(ConfigError, match="wrapper grayscale of random_walk cannot be made"):
        wrapped("grayscale", keep_channel=True)
    with pytest.raises(ConfigError, match="rescale_action needs actions with bounds"):
        wrapped("rescale_action", low=-1.0, high=1.0)


@pytest.mark.parametrize("kind", ["clip_reward", "rescale_action"])
def test_bounds_the_wrong_way_round_are_told(kind: str) -> None:
    data = walk_config().model_dump() | {"wrappers": [{"kind": kind, "low": 1.0, "high": 0.0}]}
    with pytest.raises(ConfigError, match=r"wrappers\.0.*low is 1.0, which is not below high"):
        validate(RandomWalkConfig, data, source="x")
