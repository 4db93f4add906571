"""The evaluation in a process of its own, with one that has been launched and not yet collected."""

from __future__ import annotations

import ludus
from ludus.rl.agents import rebuild
from ludus.rl.async_evaluator import AsyncEvaluator
from ludus.rl.evaluator import Evaluator

CONFIG = ludus.example("dqn")


def make() -> AsyncEvaluator:
    evaluator = Evaluator(CONFIG.env, num_episodes=2, seed=0, num_envs=1)
    return AsyncEvaluator(evaluator, CONFIG.model_dump(mode="json"))


def use(part: AsyncEvaluator) -> None:
    done = part.collect()
    launched = 0 if done is None else done[0]["opt_steps"]
    # The next launch depends on the result of the last one.
    score = 0 if done is None or done[1] is None else int(done[1])
    weights = rebuild(CONFIG.model_dump(mode="json")).weights()
    part.launch({"opt_steps": launched + 1, "env_steps": score}, weights)
