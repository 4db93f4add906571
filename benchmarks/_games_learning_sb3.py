"""Learn each task of the benchmark of learning on device games with Stable-Baselines3."""

import time
from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

import ludus
from benchmarks._games_learning_ludus import num_env_steps
from benchmarks._games_learning_rho import rho_of
from benchmarks._games_learning_tasks import (
    CONTROLS,
    NUM_CURVE_GAMES,
    NUM_FINAL_GAMES,
    NUM_POINTS,
    NUM_TRANSITIONS,
    NUM_UPDATES,
    ROLES,
)
from benchmarks._harness import REPOSITORY
from benchmarks._learning_final import final_return
from ludus.games import HironakaAgentEnv, HironakaHostEnv

NORMALISED = "PPO Acrobot"
"""The task for which the zoo normalises observations and rewards."""
LEARNING_STARTS = 5_000


def learn_env(task: str, seed: int) -> dict[str, Any]:
    """Let PPO learn a control task; return its last network's mean return, seconds and curve."""
    todo, steps = CONTROLS[task], num_env_steps(task)
    envs = make_vec_env(todo.env_id, n_envs=todo.num_envs, seed=seed)
    normal = VecNormalize(envs, gamma=todo.settings["gamma"]) if task == NORMALISED else None
    settings = {name: _as_argument(value) for name, value in todo.settings.items()}
    model = PPO("MlpPolicy", normal or envs, seed=seed, device="cpu", **settings)
    watch = _Watch(steps, _latest_return)
    model.learn(steps, callback=watch, log_interval=None)
    seconds = watch.seconds()

    def act(obs: Any) -> Any:
        seen = obs if normal is None else normal.normalize_obs(obs)
        return model.predict(seen, deterministic=True)[0]

    return {"score": final_return(todo.env_id, act), "seconds": seconds, "curve": watch.curve}


def learn_role(task: str, seed: int) -> dict[str, Any]:
    """Let DQN learn a role of Hironaka's game with the settings of the shipped config of fused_dqn."""
    role = ROLES[task]
    section = getattr(ludus.read_config(REPOSITORY / "configs" / "fused_dqn.yaml"), role)
    env = {"host": HironakaHostEnv, "agent": HironakaAgentEnv}[role]
    env_kwargs = {"max_steps": section.max_rollout_step}
    env_steps_an_update = (NUM_TRANSITIONS - LEARNING_STARTS) // NUM_UPDATES
    model = DQN(
        {"host": "MlpPolicy", "agent": "MultiInputPolicy"}[role],
        make_vec_env(env, n_envs=1, seed=seed, env_kwargs=env_kwargs),
        seed=seed,
        device="cpu",
        learning_rate=LinearSchedule(section.optimizer.learning_rate, 0.0, 1.0),
        buffer_size=NUM_TRANSITIONS,
        learning_starts=LEARNING_STARTS,
        batch_size=section.batch_size,
        tau=section.tau,
        gamma=section.gamma,
        train_freq=env_steps_an_update,
        target_update_interval=section.sync_target_every_rounds * env_steps_an_update,
        exploration_fraction=1.0,
        exploration_initial_eps=section.exploration.initial,
        exploration_final_eps=section.exploration.schedule.final,
        policy_kwargs={"net_arch": list(section.net_arch)},
    )
    player = _Greedy(model, role)
    watch = _Watch(
        NUM_TRANSITIONS, lambda model: rho_of(role, player, seed + 1_000, games=NUM_CURVE_GAMES)
    )
    model.learn(NUM_TRANSITIONS, callback=watch, log_interval=None)
    seconds = watch.seconds()
    score = rho_of(role, player, seed, games=NUM_FINAL_GAMES)
    return {"score": score, "seconds": seconds, "curve": watch.curve}


class _Greedy:
    """Plays the legal action of the greatest value; the library itself knows no masks."""

    def __init__(self, model: DQN, role: str) -> None:
        self._model, self._role = model, role

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        points_BND = obs_BO[:, :60].unflatten(1, (20, 3))
        seen: Any = points_BND
        if self._role == "agent":
            seen = {"coords": obs_BO[:, 60:], "points": points_BND}
        with torch.no_grad():
            values_BA = self._model.q_net(seen)
        if legal_BA is not None:
            values_BA = values_BA.masked_fill(~legal_BA, -torch.inf)
        return values_BA.argmax(1)


class _Watch(BaseCallback):
    """Takes the points of a curve, with the clock of the training stopped."""

    def __init__(self, num_steps: int, value: Callable[[Any], float]) -> None:
        super().__init__()
        self.curve: list[list[float]] = []
        self._every = num_steps // NUM_POINTS
        self._value = value
        self._start = self._away = 0.0

    def seconds(self) -> float:
        """Return how long the training has taken."""
        return time.perf_counter() - self._start - self._away

    def _on_training_start(self) -> None:
        self._start = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps >= (len(self.curve) + 1) * self._every:
            start = time.perf_counter()
            self.curve.append([self.num_timesteps, self._value(self.model)])
            self._away += time.perf_counter() - start
        return True


def _latest_return(model: Any) -> float:
    latest = [episode["r"] for episode in model.ep_info_buffer]
    return float(sum(latest) / len(latest)) if latest else float("nan")


def _as_argument(value: Any) -> Any:
    """Return a setting as the library wants it, `lin_0.2` being a schedule."""
    if isinstance(value, str) and value.startswith("lin_"):
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    return value
