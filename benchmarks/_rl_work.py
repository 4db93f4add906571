"""The works that every system of the RL benchmark does, with the settings all of them share.

A system trains through `num_warm_steps` env steps, which fill its buffer, start its learning and
pay for anything it compiles, and is then timed over `num_timed_steps` more.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

GAMMA = 0.99
SEED = 1


@dataclass(frozen=True)
class Work:
    """One algorithm on one env, and how long it is trained and timed; steps are env steps."""

    kind: str
    """The algorithm."""
    env_id: str
    """The env's name in Gymnasium."""
    num_envs: int
    """How many envs are stepped together, in the process that learns."""
    num_random_steps: int
    """How many steps act at random before the first gradient step."""
    num_warm_steps: int
    """How many steps are trained before the timed ones, the random ones included."""
    num_timed_steps: int
    """How many steps are timed."""


@dataclass(frozen=True)
class DQN:
    """Plain DQN with a gradient step for every `steps_per_update` env steps."""

    hidden_sizes: tuple[int, int] = (120, 84)
    learning_rate: float = 2.5e-4
    buffer_size: int = 10_000
    batch_size: int = 128
    steps_per_update: int = 4
    updates_per_target_copy: int = 500
    epsilon: float = 0.1


@dataclass(frozen=True)
class PPO:
    """PPO with an actor and a critic that share nothing."""

    hidden_sizes: tuple[int, int] = (64, 64)
    learning_rate: float = 2.5e-4
    steps_per_env: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    max_grad_norm: float = 0.5


@dataclass(frozen=True)
class SAC:
    """SAC with two critics, a learned temperature, and a gradient step for every env step."""

    hidden_sizes: tuple[int, int] = (256, 256)
    learning_rate: float = 3e-4
    buffer_size: int = 10_000
    batch_size: int = 256
    tau: float = 0.005


WORKS = {
    "dqn, 1 env": Work("dqn", "CartPole-v1", 1, 1_000, 2_000, 6_000),
    "dqn, 8 envs": Work("dqn", "CartPole-v1", 8, 1_000, 2_000, 10_000),
    "ppo, 8 envs x 128": Work("ppo", "CartPole-v1", 8, 0, 4 * 1_024, 40 * 1_024),
    "sac": Work("sac", "Pendulum-v1", 1, 300, 350, 250),
}


def steps_per_second(work: Work, warm: Callable[[], None], timed: Callable[[], None]) -> float:
    """Call `warm`, then `timed`, and return the env steps a second of the second call."""
    warm()
    assert torch.get_num_threads() == 1, torch.get_num_threads()
    start = time.perf_counter()
    timed()
    return work.num_timed_steps / (time.perf_counter() - start)
