"""The tasks of the benchmark of learning on device games: what is learned, and within which budget.

Settings have the names of Stable-Baselines3's arguments; those of PPO are what RL Baselines3 Zoo was
tuned to. DQN has those of the shipped config, in both systems.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NUM_TRANSITIONS = 100_000
"""How many moves of its own a role of Hironaka's game may learn from."""
NUM_UPDATES = 4_000
NUM_FINAL_GAMES = 2_000
"""How many games rho is measured in at the end, the same ones for every system."""
NUM_CURVE_GAMES = 500
NUM_POINTS = 20
MAX_STEPS = 50
"""After how many moves of each role a game of an evaluation is left."""
EVALUATION_SEED = 10_000


@dataclass(frozen=True)
class Control:
    """PPO on a control task of gymnasium, which ludus plays as a device game."""

    config: str
    """The shipped config; its env steps are the budget of every system."""
    env_id: str
    own: str | None
    """The shipped config of `ppo` on gymnasium's env, where there is one."""
    num_envs: int
    settings: Mapping[str, Any]


CONTROLS = {
    "PPO CartPole": Control(
        "fused_ppo",
        "CartPole-v1",
        "ppo",
        num_envs=8,
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
    "PPO Acrobot": Control(
        "fused_ppo-acrobot",
        "Acrobot-v1",
        None,
        num_envs=16,
        settings={
            "n_steps": 256,
            "n_epochs": 4,
            "gamma": 0.99,
            "gae_lambda": 0.94,
            "ent_coef": 0.0,
        },
    ),
    "PPO Pendulum": Control(
        "fused_ppo-pendulum",
        "Pendulum-v1",
        "ppo-pendulum",
        num_envs=4,
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
}

ROLES = {"DQN host, random agent": "host", "DQN agent, random host": "agent"}
"""A role of Hironaka's game that learns, its opponent playing at random."""
ROLLOUT_GAMES = {"host": 50, "agent": 20}
"""How many games ludus collects every ten rounds, so that a run stays within the transitions."""
