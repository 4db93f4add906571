"""RLTrainer: epochs of collecting and updating, with evaluations; the base of every RL trainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ludus.config.base import read_config
from ludus.config.registry import find, kinds
from ludus.core import Repeat, Run, Stateful
from ludus.core.errors import ConfigError, LudusError
from ludus.core.starting import SavedTraining
from ludus.data.replay.rollout import RolloutBuffer
from ludus.envs.config import with_own_rewards
from ludus.envs.restore import check_repeats
from ludus.envs.spaces import EnvSpec
from ludus.envs.workers import make_envs
from ludus.nn.schedules import Schedule
from ludus.nn.start import StartTarget
from ludus.nn.swapped_weights import restored, swapped_weights
from ludus.rl import agent as rl_agent, loading
from ludus.rl.config import RLConfig
from ludus.rl.custom.body import as_network, giving
from ludus.rl.custom.protocols import ReplayBufferBase
from ludus.rl.evaluation.evaluations import (
    GUARD,
    Evaluations,
    check_evaluator,
    evaluator_of,
    make_judge,
)
from ludus.rl.evaluation.evaluator import EpisodeJob
from ludus.rl.export import export_policy
from ludus.rl.plan import in_epochs, with_length, without_learn
from ludus.rl.sampling.last_step import RolloutData
from ludus.rl.sampling.sampler import Episodes, SyncSampler
from ludus.session.begun import begin, engine_options
from ludus.session.device import resolve_device
from ludus.session.reports import Reports
from ludus.session.trainer import Trainer
from ludus.store.places import is_url

T = TypeVar("T")


class RLTrainer(Trainer):
    """Trains an agent by interaction with its envs.

    train
      epoch until max_env_steps
        collect
        step x num_updates         before_step comes before each, after_step once after all
          train_step
        evaluate (every evaluate_every_epochs epochs, never in the first)
        record (every log_every_epochs epochs, and after an evaluation)
        save (every keep_every_epochs epochs)
      finish
    """

    Config: ClassVar[type[Any]] = RLConfig
    Agent: ClassVar[type[rl_agent.Agent]]
    # Metrics that depend on the clock are not reproducible.
    derived: ClassVar[tuple[str, ...]] = ("rollout_data", "_timer", "_timed_opts")

    config: RLConfig
    agent: rl_agent.Agent
    evaluations: Evaluations
    model: nn.Module | None
    """The network passed by a script."""
    replay_buffer: ReplayBufferBase | RolloutBuffer
    """The buffer that `train_step` gets its batches from."""
    sampler: SyncSampler
    _unrepeatable: str | None = None
    """Why episodes of the env cannot be repeated; None if they can."""

    make_evaluator = staticmethod(evaluator_of)
    evaluation_job = EpisodeJob
    kept = loading.kept

    def prepare(self, *, max_steps: int | None) -> None:
        """Build env, agent, buffer and evaluator from the config."""
        self.config, self.notes = begin(self.config, self.run.files, max_steps, with_length)
        config = self.config
        self.device = resolve_device(config.settings.device)
        check_evaluator(type(self), config, self.evaluator, self.model)
        self._unrepeatable = check_repeats(config.env, config.seed)
        self.env = make_envs(config)
        try:
            self._prepare_agent()
        except BaseException:
            # fit does not close what it has not opened.
            self.env.close()
            raise

    def _prepare_agent(self) -> None:
        config: Any = self.config
        self.agent = self.make_agent(self.env.spec)
        self.num_train_steps = int(config.run_opts)
        engine = self.agent.choose(config.engine, self.num_train_steps, **engine_options(self.run))
        self.config = config = config.replace(engine=engine)
        self.rate = Schedule(
            config.learning_rate_schedule,
            initial=config.optimizer.learning_rate,
            run_steps=self.num_train_steps,
        )
        self.judge = make_judge(config.evaluation)
        self.evaluations = Evaluations(config, self.judge, self.run, self.evaluator, tell=self.tell)
        self.evaluations.check(config, self.env.spec)
        self._timer, self._timed_opts = time.monotonic(), 0
        self.rollout_data: Mapping[str, Any] = {}
        """The outcome of the last collection; empty before the first."""
        is_shaped = with_own_rewards(config.env) is not config.env
        episodes = Episodes(config.num_envs, config.return_window, is_shaped=is_shaped)
        self._prepare_data(episodes)
        self._reports = Reports(
            GUARD, self.agent, evaluate=self._evaluate, take=self._take_metrics,
            weights=self.agent.weights, rates=self._log_rates,
        )  # fmt: skip

    def make_agent(self, spec: EnvSpec) -> Any:
        """Return a new agent for envs of these spaces."""
        with giving(self.model, spec):
            return type(self).Agent(self.config, spec, self.device)

    def set_model(self, model: object) -> None:
        """Use this torch network, or ludus.Model, as the body of the agent's networks.

        It takes observations (B, *shape) and returns features (B, F); the agent adds its own heads.
        Training starts from its weights, and it is itself the network trained. If an agent has
        several such bodies the others are copies; SAC's critics, which take actions too, keep the
        body of the config.
        """
        super().set_model(as_network(model))

    def __new__(cls, config: object = None, *more: object, **options: object) -> Self:
        """Return the trainer of the config's kind, if this class has no kind itself.

        Overrides of a subclass of RLTrainer take precedence over the trainer of the kind.
        """
        return super().__new__(concrete(cls, config))

    def _prepare_data(self, episodes: Episodes) -> None:
        """Make the sampler and the buffer."""
        raise NotImplementedError

    def plan(self) -> Repeat:
        """Return epochs of collecting and updating."""
        config: Any = self.config
        return in_epochs(
            config.counted[1],
            collect=self._collect,
            train_step=self._train_step,
            reports=self._reports,
            finish=self._finish,
            num_updates=lambda run: self.get_num_updates(),
            is_far=self._is_far(),
            note=self.updates_note(),
            info=self._epoch_info,
        )

    def _is_far(self) -> Callable[[Run], bool] | None:
        """Return the test that ends the updates of an epoch early; None if there is none."""
        return None

    def _epoch_info(self, run: Run) -> Mapping[str, Any]:
        """Return the argument of `after_epoch(info)`."""
        updates = self.sampler.num_rollout_updates(run.counters["opt_steps"])
        return {"rollout": self.rollout_data, "num_model_updates": updates}

    def _collect(self, run: Run) -> None:
        self.sampler.begin_rollout(run.counters["opt_steps"])
        self.rollout_data = self.collect_rollouts(self.obs, add_to_buffer=True)
        run.counters["env_steps"] = self.sampler.num_env_steps

    def collect_rollouts(
        self, obs: NDArray[Any] | None = None, add_to_buffer: bool = True
    ) -> Mapping[str, Any]:
        """Take the env steps of one epoch, starting at `obs`; return their outcome.

        `obs` must be the current observations. Without `add_to_buffer` the steps are discarded.
        """
        if obs is not None and obs is not self.obs and not np.array_equal(obs, self.obs):
            raise LudusError(
                "collect_rollouts was given observations that the envs do not show now; give it"
                " trainer.obs, or nothing"
            )
        self._take_steps(add_to_buffer)
        return RolloutData(self.sampler, self.agent.to_env)

    def _take_steps(self, add_to_buffer: bool) -> None:
        """Take the env steps of one epoch, into the buffer or discarded."""
        raise NotImplementedError

    def updates_note(self) -> str:
        """Return a short note on the number of updates per epoch."""
        raise NotImplementedError

    def get_num_updates(self) -> int:
        """Return the number of updates after a collection."""
        raise NotImplementedError

    def _train_step(self, run: Run) -> None:
        config: Any = self.config
        self.train_step(self.replay_buffer.sample(config.batch_size), run.round("step"))
        run.counters["opt_steps"] += 1

    def train_step(self, batch: Any, batch_idx: int) -> None:
        """Learn from one batch, and update the priorities of its transitions if replay is prioritised.

        Override it to learn in another way.
        """
        opts = self.run.counters["opt_steps"]
        errors = self.agent.step(batch, opts, self.rate(opts))
        if errors is not None:
            # TD errors are returned only for batches of a prioritised buffer.
            buffer: Any = self.replay_buffer
            buffer.update_priorities(batch.indices, errors)

    def _evaluate(self, run: Run) -> Mapping[str, Any]:
        started = time.monotonic()
        metrics = self.evaluate(async_eval=self.async_eval)
        # Evaluation time does not count in the rates.
        seconds = time.monotonic() - started
        self.sampler.pause(seconds)
        self._timer += seconds
        return metrics

    def evaluate(self, async_eval: bool = False) -> Mapping[str, Any]:
        """Evaluate and judge the agent; with async_eval launch an evaluation and judge the one before."""
        if not async_eval:
            return self.evaluations.evaluate(self.run, self.agent)
        self.evaluations.launch(self.run, self.agent)
        return {}

    def tell(self, text: str) -> None:
        """Show one line to the user."""
        self.run.tell(text)

    def _take_metrics(self, run: Run) -> dict[str, float]:
        """Return the accumulated metrics, and reset them."""
        metrics = {**self.sampler.episodes.metrics(), **self.agent.take_metrics()}
        metrics |= self.agent.info(self.sampler.num_env_steps)
        opts = run.counters["opt_steps"]
        metrics["train/learning_rate"] = self.rate(opts)
        metrics["train/n_updates"] = float(self._num_updates(opts))
        return metrics

    def _log_rates(self, run: Run) -> None:
        """Log the rates since the last record, and restart their measurement."""
        opts, elapsed = run.counters["opt_steps"], time.monotonic() - self._timer
        run.log.rate("fps", self.sampler.fps())
        run.log.rate("opt_steps_per_sec", (opts - self._timed_opts) / max(elapsed, 1e-9))
        self.sampler.reset()
        self._timer, self._timed_opts = time.monotonic(), opts

    def _num_updates(self, num_opts: int) -> int:
        """Return the number of updates as other libraries count them: the optimisation steps."""
        return num_opts

    def _finish(self, run: Run) -> None:
        """Wait for the pending evaluation, and write the remaining metrics."""
        self.evaluations.settle(run)
        self._reports.finish(run)

    def parts(self) -> Mapping[str, Stateful]:
        """Return everything that is saved and restored."""
        async_evaluator = self.evaluations.async_evaluator
        parts = {
            "agent": self.agent,
            # Before the sampler, which drops pending steps of episodes that could not be restored.
            "env": self.env,
            "sampler": self.sampler,
            "replay_buffer": self.replay_buffer,
            "judge": self.judge,
        }
        return parts if async_evaluator is None else {**parts, "evaluation": async_evaluator}

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the policy weights in a saved state; the agent is not changed."""
        with restored(self.agent, what=["state"]):
            self.agent.load_state_dict(state["agent"])
            return dict(self.agent.weights())

    def starting(self) -> StartTarget:
        """Return the networks and the normaliser, which can start as those of another run."""
        if not isinstance(self.agent, rl_agent.Agent):
            raise ConfigError(
                "'start' is given, but the agent is the script's own; load its state in the script, and set"
                " 'start' to null"
            )
        return self.agent.starting()

    @staticmethod
    def saved_training(state: Mapping[str, Any]) -> SavedTraining:
        """Return the networks, the normaliser and the replay buffer in a saved state."""
        found = rl_agent.Agent.saved_training(state["agent"])
        return replace(found, parts={**found.parts, "replay": state["replay_buffer"]})

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the metrics of a saved policy on held-out episodes, which no model selection has used."""
        with swapped_weights(self.agent, weights):
            return self.evaluations.held_out(self.agent, episodes=episodes, seed=seed)

    def film(self, weights: Mapping[str, Any], index: int, fps: float) -> Sequence[Any]:
        """Return the frames of one evaluation episode of a saved policy."""
        with swapped_weights(self.agent, weights):
            return self.evaluations.own.film(self.agent, index, fps)

    def export(self, weights: Mapping[str, Any], path: Path) -> None:
        """Export a saved policy in a form that runs with NumPy alone."""
        with swapped_weights(self.agent, weights):
            export_policy(self.agent, path)

    def migrated(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state of an earlier version with its cursor converted to the current plan."""
        run = state.get("run")
        if not isinstance(run, Mapping) or "cursor" not in run:
            return state
        return {**state, "run": {**run, "cursor": without_learn(run["cursor"])}}

    def inexact_because(self) -> Sequence[str]:
        """Return the reasons from the parts, and whether episodes of the env can be repeated."""
        reasons = [self._unrepeatable] if self._unrepeatable else []
        return [*reasons, *super().inexact_because()]

    def open(self) -> None:
        """Report what fit changed, and begin to evaluate."""
        super().open()
        if self.sampler.num_env_steps:
            # Resumed in the middle of an epoch, whose last hook may still read it.
            self.rollout_data = RolloutData(self.sampler, self.agent.to_env)
        self.evaluations.open()

    def close(self) -> None:
        """Stop the processes of envs and evaluation."""
        self.env.close()
        self.evaluations.close()

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


def concrete(cls: type[T], config: object) -> type[T]:
    """Return this class if it has an Agent, else a subclass of it for the config's kind.

    A class that only extends RLTrainer becomes one that extends the trainer of the kind.
    """
    if hasattr(cls, "Agent"):
        return cls
    kind = _kind(config)
    if not isinstance(kind, str):
        return cls
    found: type[Any] = find("trainer", kind)
    if not hasattr(found, "Agent"):
        agents = [name for name in kinds("trainer") if hasattr(find("trainer", name), "Agent")]
        raise ConfigError(
            f"{cls.__name__} trains an agent, but the config is of kind '{kind}'; agents are"
            f" {', '.join(agents)}, and ludus.build_trainer(config) builds any kind"
        )
    if issubclass(found, cls):
        return found
    base = cls.__mro__[1]
    if not issubclass(found, base):
        raise ConfigError(
            f"{cls.__name__} adds to {base.__name__}, which the trainer of kind '{kind}' is not; derive"
            " it from ludus.RLTrainer"
        )
    return type(cls.__name__, (cls, found), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _kind(config: object) -> object:
    if isinstance(config, str | Path):
        return read_config(config).kind
    return config.get("kind") if isinstance(config, Mapping) else getattr(config, "kind", None)
