"""Spaces of gymnasium as shapes that a network can fit."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from ludus.core.errors import ConfigError
from ludus.envs.spaces import (
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    ObservationReader,
    actions_of,
)
from ludus.envs.vector import make_vector_env
from tests.rl.random_walks import gym_config


def test_the_spec_says_what_a_network_must_fit() -> None:
    spec = make_vector_env(gym_config("CartPole-v1"), 1, 0).spec
    assert (spec.obs_shape, spec.obs_dtype, spec.has_masks) == ((4,), np.float32, False)
    assert spec.action == DiscreteActions(2, 0)
    assert spec.name == "CartPole-v1"
    box = make_vector_env(gym_config("Pendulum-v1"), 1, 0).spec.action
    assert isinstance(box, BoxActions)
    assert (box.low.tolist(), box.high.tolist(), box.is_bounded) == ([-2.0], [2.0], True)


def test_actions_of_every_space() -> None:
    assert actions_of(spaces.MultiDiscrete([2, 3], start=[1, 0]), name="x") == (
        MultiDiscreteActions((2, 3), (1, 0))
    )
    assert actions_of(spaces.MultiBinary(2), name="x") == MultiDiscreteActions((2, 2), (0, 0))
    assert not actions_of(spaces.Box(0, np.inf, (2,)), name="x").is_bounded
    with pytest.raises(ConfigError, match="env x: actions of the space"):
        actions_of(spaces.Text(3), name="x")


@pytest.mark.parametrize(
    ("space", "raw", "expected"),
    [
        (spaces.Discrete(3, start=1), np.int64(2), [0, 1, 0]),
        (spaces.Discrete(3), 2, [0, 0, 1]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (spaces.Box(-1, 1, (2,), np.float64), np.array([0.5, 1.0]), [0.5, 1.0]),
        (spaces.Box(-1, 1, (2,), np.float32), np.array([0.5, 1.0]), [0.5, 1.0]),
        (spaces.Box(0, 9, (2,), np.int64), np.array([3, 4]), [3, 4]),
    ],
)
def test_observations_become_rows_of_float32(space, raw, expected) -> None:
    reader = ObservationReader(space, name="x")
    found = reader.read(raw)
    assert found.dtype == reader.dtype == np.float32
    assert found.shape == reader.shape
    assert found.tolist() == expected


def test_images_stay_bytes() -> None:
    reader = ObservationReader(spaces.Box(0, 255, (4, 4), np.uint8), name="x")
    assert reader.dtype == np.uint8
    assert reader.read(np.full((4, 4), 7, np.uint8)).dtype == np.uint8


@pytest.mark.parametrize(
    "space", [spaces.Dict(a=spaces.Discrete(2)), spaces.Tuple([spaces.Discrete(2)])]
)
def test_observations_that_are_no_array_name_the_wrapper_that_helps(space) -> None:
    with pytest.raises(ConfigError, match=r"env x: .*flatten_observation"):
        ObservationReader(space, name="x")
