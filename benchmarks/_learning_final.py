"""Play the last episodes of a learning run: the same for every system, from the same starts."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from benchmarks._learning_tasks import EVALUATION_SEED, NUM_FINAL_EPISODES


def final_return(env_id: str, act: Callable[[Any], Any]) -> float:
    """Return the mean return of a policy, a function from observations to actions, row by row.

    Episode i begins with the same seed whoever has learned: which starts are drawn says more about a
    mean return than small differences between policies do.
    """
    envs = [gymnasium.make(env_id) for _ in range(NUM_FINAL_EPISODES)]
    starts = [env.reset(seed=EVALUATION_SEED + i)[0] for i, env in enumerate(envs)]
    obs = np.stack(starts).astype(np.float32)
    returns, is_over = np.zeros(len(envs)), np.zeros(len(envs), bool)
    while not is_over.all():
        actions = act(obs)
        for i, env in enumerate(envs):
            if not is_over[i]:
                obs[i], reward, terminated, truncated, _ = env.step(actions[i])
                returns[i] += reward
                is_over[i] = terminated or truncated
    return float(returns.mean())
