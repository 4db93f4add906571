"""What both systems of the arena's benchmark train: the shipped example, with decisions in the last round."""

from typing import Any

import ludus

WARM = 5
"""Iterations before the timed ones."""


def timed_of(num_envs: int) -> int:
    """Return how many iterations are timed."""
    return 24 if num_envs <= 256 else 6


def config_of(num_envs: int, device: str) -> Any:
    """Return the parameters of the work."""
    example = ludus.example("vanilla_ppo")
    if getattr(example, "pretraining", None) is not None:
        example = example.replace(pretraining=None)
    return example.replace(
        **{
            "protocol.min_message_rounds": example.protocol.max_message_rounds,
            "rl.rollouts_per_iteration": num_envs,
            "rl.minibatch_size": num_envs,
            "rl.num_test_iterations": 0,
            "evaluate_every_iterations": 0,
            "max_iterations": WARM + timed_of(num_envs) + 1,
            "log_every_iterations": 10,
            "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
            "settings.device": device,
            "settings.threads": 1,
            "settings.display": "plain",
            "settings.loggers": [{"kind": "tensorboard"}],
            "settings.checkpoint.every_seconds": 5.0,
        }
    )
