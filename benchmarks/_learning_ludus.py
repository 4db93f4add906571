"""Learn each task of the learning benchmark with ludus, by the config that is shipped for it."""

import json
import time
from pathlib import Path
from typing import Any

import ludus
from benchmarks._harness import REPOSITORY
from benchmarks._learning_final import final_return
from benchmarks._learning_tasks import (
    NUM_EVALUATION_EPISODES,
    NUM_EVALUATIONS,
    TASKS,
    Task,
)

CONFIGS = {
    "dqn CartPole": "dqn",
    "dqn Acrobot": "dqn-acrobot",
    "dqn MountainCar": "dqn-mountaincar",
    "ppo CartPole": "ppo",
    "ppo Pendulum": "ppo-pendulum",
    "sac Pendulum": "sac",
    "iqn CartPole": "iqn",
}


def learn(task: str, seed: int) -> dict[str, Any]:
    """Return the mean return at the end, the training seconds until the goal, and the curve.

    The seconds are None where the task has no goal or the run has not come to it. The curve is the
    mean return of the latest training episodes, by env steps.
    """
    todo = TASKS[task]
    config = ludus.read_config(REPOSITORY / "configs" / f"{CONFIGS[task]}.yaml")
    config = config.replace(
        **{
            "seed": seed,
            "evaluation.episodes": NUM_EVALUATION_EPISODES,
            "evaluation.target": None,
            "settings.display": "plain",
            "settings.threads": 1,
        },
        **_length(config, todo),
    )
    trainer = ludus.build_trainer(config)
    watch = _Watch(todo.goal, trainer)
    trainer.add(watch)
    result = trainer.fit(name="learning")
    final = final_return(todo.env_id, lambda obs: trainer.agent.act_greedy(obs, None))
    lines = Path(str(result.run_dir), "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    curve = [
        [record["env_steps"], record["rollout/ep_rew_mean"]]
        for record in records
        if "rollout/ep_rew_mean" in record
    ]
    return {"final_return": final, "seconds_to_goal": watch.seconds_to_goal, "curve": curve}


def _length(config: Any, task: Task) -> dict[str, int]:
    """Return a run of the task's env steps, evaluated on the way where it has a goal."""
    prefix = config.counted[0]
    if prefix != "steps.":
        per_epoch = config.steps_per_epoch * config.num_envs
        every = max(1, task.num_steps // per_epoch // NUM_EVALUATIONS)
        return {
            f"{prefix}max_env_steps": task.num_steps,
            f"{prefix}evaluate_every_epochs": every if task.goal is not None else 0,
        }
    opts = (task.num_steps - config.learning_starts) // config.steps.update_every_env_steps
    every = opts // NUM_EVALUATIONS if task.goal is not None else 0
    return {"steps.max_opt_steps": opts, "steps.evaluate_every_opt_steps": every}


class _Watch:
    """A callback that counts the time of training, evaluation excluded, until the goal is reached."""

    def __init__(self, goal: float | None, trainer: Any) -> None:
        self.seconds_to_goal: float | None = None
        self._goal = goal
        self._trainer = trainer
        self._seconds = 0.0
        self._started = 0.0

    def before_train(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def before_evaluate(self) -> None:
        """Stop the clock."""
        self._seconds += time.perf_counter() - self._started

    def after_evaluate(self) -> None:
        """See whether the goal is reached, and start the clock again."""
        best = self._trainer.best()
        is_reached = best is not None and self._goal is not None and best["score"] >= self._goal
        if is_reached and self.seconds_to_goal is None:
            self.seconds_to_goal = self._seconds
        self._started = time.perf_counter()
