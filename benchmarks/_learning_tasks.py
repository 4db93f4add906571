"""The tasks of the learning benchmark: an algorithm, an env, a budget, and the settings for it.

The settings have the names of Stable-Baselines3's arguments. What is not given has its default.
They are those that RL Baselines3 Zoo was tuned to; budgets are as short as the task allows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

NUM_EVALUATIONS = 20
"""How often a task with a goal is evaluated, at equal distances, the last time at the end."""
NUM_EVALUATION_EPISODES = 20
NUM_FINAL_EPISODES = 100
"""How many episodes the return at the end is the mean of, the same ones for every system."""
NUM_POINTS = 40
"""How many points a curve has."""
EVALUATION_SEED = 10_000
"""Where the seeds of evaluations begin, away from every training seed."""


@dataclass(frozen=True)
class Task:
    """One algorithm learning one env within a number of env steps."""

    kind: Literal["dqn", "iqn", "ppo", "sac"]
    """The algorithm."""
    env_id: str
    """The env's name in Gymnasium."""
    num_envs: int
    """How many envs are stepped together."""
    num_steps: int
    """How many env steps may be used."""
    goal: float | None
    """The mean return whose reaching is timed, or None when only the end is looked at."""
    settings: Mapping[str, Any]
    """The algorithm's settings; a text like `lin_0.2` falls in a line from that number to 0."""


TASKS = {
    "dqn CartPole": Task(
        "dqn",
        "CartPole-v1",
        num_envs=1,
        num_steps=50_000,
        goal=475.0,
        settings={
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    "dqn Acrobot": Task(
        "dqn",
        "Acrobot-v1",
        num_envs=1,
        num_steps=30_000,
        goal=None,
        settings={
            "learning_rate": 6.3e-4,
            "batch_size": 128,
            "buffer_size": 50_000,
            "learning_starts": 0,
            "gamma": 0.99,
            "target_update_interval": 250,
            "train_freq": 4,
            "gradient_steps": -1,
            "exploration_fraction": 0.12,
            "exploration_final_eps": 0.1,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    "dqn MountainCar": Task(
        "dqn",
        "MountainCar-v0",
        num_envs=1,
        num_steps=120_000,
        goal=None,
        settings={
            "learning_rate": 4e-3,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1_000,
            "gamma": 0.98,
            "target_update_interval": 600,
            "train_freq": 16,
            "gradient_steps": 8,
            "exploration_fraction": 0.2,
            "exploration_final_eps": 0.07,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    "ppo CartPole": Task(
        "ppo",
        "CartPole-v1",
        num_envs=8,
        num_steps=100_000,
        goal=475.0,
        settings={
            "n_steps": 32,
            "batch_size": 256,
            "n_epochs": 20,
            "learning_rate": "lin_0.001",
            "clip_range": "lin_0.2",
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "ent_coef": 0.0,
        },
    ),
    "ppo Pendulum": Task(
        "ppo",
        "Pendulum-v1",
        num_envs=4,
        num_steps=100_000,
        goal=None,
        settings={
            "n_steps": 1_024,
            "n_epochs": 10,
            "learning_rate": 1e-3,
            "clip_range": 0.2,
            "gamma": 0.9,
            "gae_lambda": 0.95,
            "ent_coef": 0.0,
            "use_sde": True,
            "sde_sample_freq": 4,
        },
    ),
    # Stable-Baselines3 has no IQN of its own.
    "iqn CartPole": Task(
        "iqn", "CartPole-v1", num_envs=8, num_steps=50_000, goal=475.0, settings={}
    ),
    "sac Pendulum": Task(
        "sac",
        "Pendulum-v1",
        num_envs=1,
        num_steps=10_000,
        goal=None,
        settings={"learning_rate": 1e-3},
    ),
}
