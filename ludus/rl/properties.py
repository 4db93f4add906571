"""Read-only properties of an RL trainer: env steps, returns, rewards, by the names that scripts know."""

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
    """What scripts read of an RL trainer while it runs and after; each is computed from the parts."""

    run: Run
    env: Envs
    agent: Agent | AgentAdapter
    sampler: SyncSampler
    evaluations: Evaluations
    judge: Judge
    _unrepeatable: str | None

    @property
    def async_eval(self) -> bool:
        """Whether evaluations run in a process of their own."""
        return self.evaluations.async_evaluator is not None

    @property
    def obs(self) -> Any:
        """What the envs show now, one row an env."""
        return self.env.obs

    @property
    def epoch(self) -> int:
        """How many epochs have ended."""
        return self.run.counters["epoch"]

    @property
    def train_end(self) -> bool:
        """Whether training is over."""
        return self.run.is_finished or self.run.stop_reason is not None

    @property
    def model_dir(self) -> Path | None:
        """Where this run keeps its models: best, and one for each number of opt_steps; None if nowhere."""
        files = self.run.files
        if files is None or is_url(files.place):
            return None
        return Path(files.place) / "models"

    @property
    def step(self) -> int:
        """How many env steps were taken, over all envs."""
        return self.sampler.num_env_steps

    @property
    def num_model_updates(self) -> int:
        """How many optimisation steps were made."""
        return self.run.counters["opt_steps"]

    @property
    def reward(self) -> Any:
        """The reward of each env's last step."""
        return self.sampler.last_step()["reward"]

    @property
    def done(self) -> Any:
        """Whether each env's last step ended its episode, however it ended."""
        step = self.sampler.last_step()
        return step["terminated"] | step["truncated"]

    @property
    def num_episodes(self) -> int:
        """How many training episodes have ended."""
        return self.sampler.episodes.num_ended

    @property
    def current_episode_reward(self) -> Any:
        """What each env's episode under way has brought so far."""
        return self.sampler.episodes.returns_so_far

    @property
    def episode_reward_list(self) -> list[float]:
        """The returns of the latest training episodes, as many as `return_window` says."""
        return self.sampler.episodes.latest_returns

    def best(self) -> Mapping[str, Any] | None:
        """Return metric, score and place of the best policy so far."""
        return self.judge.best if hasattr(self, "judge") else None

    def inexact_because(self) -> Sequence[str]:
        """Return the reasons of the envs, of the evaluation and of the agent."""
        if not hasattr(self, "env"):
            return ()
        reasons = [self._unrepeatable] if self._unrepeatable else []
        reasons += [*self.env.inexact_because(), *self.evaluations.inexact_because()]
        return [*reasons, *self.agent.inexact_because()]
