"""Learn each task of the learning benchmark with Stable-Baselines3."""

import time
from typing import Any

from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import LinearSchedule

from benchmarks._learning_final import final_return
from benchmarks._learning_tasks import (
    EVALUATION_SEED,
    NUM_EVALUATION_EPISODES,
    NUM_EVALUATIONS,
    NUM_POINTS,
    TASKS,
    Task,
)


def learn(task: str, seed: int) -> dict[str, Any]:
    """Return the mean return at the end, the training seconds until the goal, and the curve.

    The seconds are None where the task has no goal or the run has not come to it. The curve is the
    mean return of the latest training episodes, by env steps.
    """
    todo = TASKS[task]
    model = {"dqn": DQN, "ppo": PPO, "sac": SAC}[todo.kind](
        "MlpPolicy",
        make_vec_env(todo.env_id, n_envs=todo.num_envs, seed=seed),
        seed=seed,
        device="cpu",
        **{name: _as_argument(value) for name, value in todo.settings.items()},
    )
    watch = _Watch(todo, seed)
    model.learn(todo.num_steps, callback=watch, log_interval=None)
    return {
        "final_return": final_return(
            todo.env_id, lambda obs: model.predict(obs, deterministic=True)[0]
        ),
        "seconds_to_goal": watch.seconds_to_goal,
        "curve": watch.curve,
    }


class _Watch(BaseCallback):
    """Evaluates on the way where the task has a goal, with the clock of the training stopped."""

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__()
        self.seconds_to_goal: float | None = None
        self.curve: list[list[float]] = []
        self._steps_between_points = task.num_steps // NUM_POINTS
        self._goal = task.goal
        self._steps_between = task.num_steps // NUM_EVALUATIONS
        self._next_evaluation = self._steps_between
        self._seconds = 0.0
        self._started = 0.0
        self._envs = make_vec_env(
            task.env_id, n_envs=NUM_EVALUATION_EPISODES, seed=EVALUATION_SEED + seed
        )

    def mean_return(self, model: BaseAlgorithm) -> float:
        """Return the mean return of the model as it is, acting without chance."""
        mean, _ = evaluate_policy(model, self._envs, NUM_EVALUATION_EPISODES, deterministic=True)
        return float(mean)

    def _on_training_start(self) -> None:
        self._started = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps >= (len(self.curve) + 1) * self._steps_between_points:
            latest = [episode["r"] for episode in self.model.ep_info_buffer]
            mean = float(sum(latest) / len(latest)) if latest else float("nan")
            self.curve.append([self.num_timesteps, mean])
        if self._goal is None or self.seconds_to_goal is not None:
            return True
        if self.num_timesteps >= self._next_evaluation:
            self._seconds += time.perf_counter() - self._started
            self._next_evaluation += self._steps_between
            if self.mean_return(self.model) >= self._goal:
                self.seconds_to_goal = self._seconds
            self._started = time.perf_counter()
        return True


def _as_argument(value: Any) -> Any:
    """Return a setting as the library wants it, `lin_0.2` being a schedule."""
    if isinstance(value, str) and value.startswith("lin_"):
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    return value
