"""The evaluation in a process of its own, with one that has been launched and not yet collected."""

from __future__ import annotations

import ludus
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.rl.evaluation.evaluator import rebuild_agent

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
    launched = 0 if done is None else done.counters["opt_steps"]
    # The next launch depends on the result of the last one.
    score = 0 if done is None or done.is_lost else int(done.metrics["eval/return_mean"])
    weights = rebuild_agent(CONFIG).weights()
    part.launch({"opt_steps": launched + 1, "env_steps": score}, weights)


def try_out(part: AsyncEvaluator) -> None:
    """Look at it: a launch takes a process of its own each time."""
    part.state_dict()
