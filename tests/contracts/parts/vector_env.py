"""Envs stepped together: the episode of each and its actions since the reset."""

from __future__ import annotations

import numpy as np

from ludus.envs.vector import VectorEnv, make_vector_env
from tests.rl.random_walks import gym_config

# States of older versions have no marks.
OPTIONAL = ("journal/marks",)


def make() -> VectorEnv:
    return make_vector_env(gym_config("CartPole-v1"), 3, seed=0)


def use(vector: VectorEnv) -> None:
    if vector.state_dict()["episodes"][0] < 0:
        vector.reset()
    for step in range(25):
        vector.step(np.array([step % 2, step % 3 % 2, 1]))
