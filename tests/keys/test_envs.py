"""What each key does of an env's section and of its wrappers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.envs.config import make_env
from tests.envs.test_wrappers import Images, runtime, sticky, wrapped
from tests.keys.table import changes
from tests.rl.random_walks import gym_config, walk_config

ENV = "env gymnasium"


@changes(ENV, "kind", "id")
def test_the_env_of_that_id_is_made(kind: str) -> None:
    assert make_env(gym_config("CartPole-v1")).observation_space.shape == (4,)
    assert make_env(gym_config("Pendulum-v1")).observation_space.shape == (3,)


@changes(ENV, "kwargs")
def test_the_env_is_built_with_these_arguments(kind: str) -> None:
    def torque(**kwargs: Any) -> float:
        env: Any = make_env(gym_config("Pendulum-v1", kwargs=kwargs)).unwrapped
        return float(env.g)

    assert (torque(), torque(g=2.5)) == (10.0, 2.5)


def length_of(env: Any) -> int:
    env.reset(seed=0)
    for step in range(1, 1000):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return step
    return 1000


@changes(ENV, "max_episode_steps")
def test_an_episode_is_truncated_after_so_many_steps(kind: str) -> None:
    assert length_of(make_env(gym_config("Pendulum-v1", max_episode_steps=7))) == 7
    assert length_of(make_env(gym_config("Pendulum-v1"))) == 200


@changes(ENV, "wrappers")
def test_wrappers_stand_around_the_env_the_first_innermost(kind: str) -> None:
    clip = {"kind": "clip_reward", "low": -1.0, "high": 1.0}
    scale = {"kind": "scale_reward", "scale": 10.0}
    found = []
    for wrappers in ([], [clip, scale], [scale, clip]):
        env = make_env(gym_config("CartPole-v1", wrappers=wrappers))
        env.reset(seed=0)
        found.append(env.step(0)[1])
    assert found == [1.0, 10.0, 1.0]


@changes("wrapper time_limit", "kind", "max_episode_steps")
def test_a_time_limit_truncates_after_so_many_steps(kind: str) -> None:
    for count in (3, 8):
        assert length_of(wrapped("time_limit", max_episode_steps=count)) == count


@changes("wrapper action_repeat", "kind", "num_repeats")
def test_each_action_is_done_so_often(kind: str) -> None:
    for count in (2, 5):
        assert length_of(wrapped("action_repeat", num_repeats=count)) == 20 // count


@changes("wrapper clip_reward", "kind", "low", "high")
def test_rewards_are_cut_at_low_and_high(kind: str) -> None:
    env: Any = wrapped("clip_reward", low=-0.5, high=2.0)
    assert [env.reward(x) for x in (-9.0, -0.25, 1.5, 9.0)] == [-0.5, -0.25, 1.5, 2.0]


@changes("wrapper scale_reward", "kind", "scale")
def test_rewards_are_multiplied_by_the_scale(kind: str) -> None:
    plain = make_env(walk_config())
    scaled = wrapped("scale_reward", scale=3.0)
    plain.reset(seed=0)
    scaled.reset(seed=0)
    assert float(scaled.step(1)[1]) == pytest.approx(3 * float(plain.step(1)[1]))


@changes("wrapper frame_stack", "kind", "num_frames", "padding")
def test_so_many_observations_are_shown_and_what_stands_before_the_first(kind: str) -> None:
    for count, padding in ((2, "zero"), (4, "reset")):
        first, _ = wrapped("frame_stack", num_frames=count, padding=padding).reset(seed=0)
        assert first.shape == (count, 3)
        assert np.array_equal(first[0], first[-1] if padding == "reset" else np.zeros(3))


@changes("wrapper flatten_observation", "kind")
def test_an_observation_becomes_one_row(kind: str) -> None:
    stacked = {"kind": "frame_stack", "num_frames": 2, "padding": "zero"}
    env = make_env(walk_config(wrappers=[stacked, {"kind": "flatten_observation"}]))
    assert env.observation_space.shape == (6,)


@changes("wrapper sticky_action", "kind", "probability")
def test_the_action_before_is_done_again_so_often(kind: str) -> None:
    for probability in (0.0, 0.75):
        env: Any = sticky(probability)
        env.reset(seed=0)
        for step in range(2000):
            env.step(step)
        stuck = sum(done != step for step, done in enumerate(env.unwrapped.done)) / 2000
        assert stuck == pytest.approx(probability, abs=0.04)


@changes("wrapper rescale_action", "kind", "low", "high")
def test_the_agent_sees_actions_in_this_range(kind: str) -> None:
    for low, high in ((-1.0, 1.0), (0.0, 3.0)):
        wrapper = {"kind": "rescale_action", "low": low, "high": high}
        space: Any = make_env(gym_config("Pendulum-v1", wrappers=[wrapper])).action_space
        assert (float(space.low[0]), float(space.high[0])) == (low, high)


@changes("wrapper resize", "kind", "height", "width")
def test_images_are_brought_to_this_size(kind: str) -> None:
    pytest.importorskip("cv2")
    for height, width in ((4, 5), (3, 2)):
        assert runtime(Images(), "resize", height=height, width=width).reset()[0].shape[:2] == (
            height,
            width,
        )


@changes("wrapper grayscale", "kind", "keep_channel")
def test_images_become_grey_with_or_without_a_channel(kind: str) -> None:
    assert runtime(Images(), "grayscale", keep_channel=True).reset(seed=0)[0].shape == (8, 6, 1)
    assert runtime(Images(), "grayscale", keep_channel=False).reset(seed=0)[0].shape == (8, 6)
