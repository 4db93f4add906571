"""Read-only properties of an RL trainer: env steps, returns, rewards, by their usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.core import Run
from ludus.judge.judge import Judge
from ludus.rl.agent import Agent
from ludus.rl.custom.agent import AgentAdapter
from ludus.rl.evaluation.evaluations import Evaluations
from ludus.rl.sampling.sampler import Envs, SyncSampler
from ludus.store.places import is_url


class ReadOnlyProperties:
    """Properties that scripts read during and after a run; each is computed from the parts."""

    run: Run
    env: Envs
    agent: Agent | AgentAdapter
    sampler: SyncSampler
    evaluations: Evaluations
    judge: Judge
    _unrepeatable: str | None

    @property
    def async_eval(self) -> bool:
        """Whether evaluations are asynchronous, in a separate process."""
        return self.evaluations.async_evaluator is not None

    @property
    def obs(self) -> Any:
        """The current observations, one row per env."""
        return self.env.obs

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return self.run.counters["epoch"]

    @property
    def train_end(self) -> bool:
        """Whether training is over."""
        return self.run.is_finished or self.run.stop_reason is not None

    @property
    def model_dir(self) -> Path | None:
        """The directory of this run's models, best and <opt_steps>; None if there is none."""
        files = self.run.files
        if files is None or is_url(files.place):
            return None
        return Path(files.place) / "models"

    @property
    def step(self) -> int:
        """Number of env steps, over all envs."""
        return self.sampler.num_env_steps

    @property
    def num_model_updates(self) -> int:
        """Number of optimisation steps."""
        return self.run.counters["opt_steps"]

    @property
    def reward(self) -> Any:
        """The reward of each env's last step."""
        return self.sampler.last_step()["reward"]

    @property
    def done(self) -> Any:
        """Whether each env's last step terminated or truncated its episode."""
        step = self.sampler.last_step()
        return step["terminated"] | step["truncated"]

    @property
    def num_episodes(self) -> int:
        """Number of finished training episodes."""
        return self.sampler.episodes.num_ended

    @property
    def current_episode_reward(self) -> Any:
        """The return so far of each env's current episode."""
        return self.sampler.episodes.returns_so_far

    @property
    def episode_reward_list(self) -> list[float]:
        """The returns of the latest `return_window` training episodes."""
        return self.sampler.episodes.latest_returns

    def best(self) -> Mapping[str, Any] | None:
        """The metric, score and location of the best policy so far."""
        return self.judge.best if hasattr(self, "judge") else None

    def inexact_because(self) -> Sequence[str]:
        """Return the reasons from the envs, the evaluation and the agent."""
        if not hasattr(self, "env"):
            return ()
        reasons = [self._unrepeatable] if self._unrepeatable else []
        reasons += [*self.env.inexact_because(), *self.evaluations.inexact_because()]
        return [*reasons, *self.agent.inexact_because()]
