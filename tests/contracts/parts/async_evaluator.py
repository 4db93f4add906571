"""The evaluation in a process of its own, with one that has been launched and not yet collected."""

from __future__ import annotations

import ludus
from ludus.judge.beside import AsyncEvaluator
from ludus.rl.agents import rebuild

CONFIG = ludus.example("dqn", **{"evaluation.episodes": 2, "evaluation.envs": 1})

# A policy is made of the weights, and refuses them, where they are evaluated.
HARMLESS = (
    "pending nothing",
    "pending/counters *missing",
    "pending/counters a stranger more",
    "pending/weights*",
)


def make() -> AsyncEvaluator:
    return AsyncEvaluator(CONFIG)


def use(part: AsyncEvaluator) -> None:
    done = part.collect()
    launched = 0 if done is None else done[0]["opt_steps"]
    # The next launch depends on the result of the last one.
    score = 0 if done is None or done[1] is None else int(done[1])
    weights = rebuild(CONFIG.model_dump(mode="json")).weights()
    part.launch({"opt_steps": launched + 1, "env_steps": score}, weights)


def try_out(part: AsyncEvaluator) -> None:
    """Look at it: a launch takes a process of its own each time."""
    part.state_dict()
