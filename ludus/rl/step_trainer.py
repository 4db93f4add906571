"""StepRLTrainer: agents with a replay buffer, counted in optimisation steps or in epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from ludus.config.base import given
from ludus.core import Repeat, Result, Run
from ludus.core.intervals import Work
from ludus.core.runtime import Resume
from ludus.core.services import EvaluatorHere, Records
from ludus.data.replay.prioritised import PrioritisedReplay
from ludus.data.replay.ring import ReplayBuffer
from ludus.envs.spaces import EnvSpec
from ludus.nn.schedules import Schedule
from ludus.nn.start import StartTarget
from ludus.rl.config import StepsConfig
from ludus.rl.custom.agent import AgentAdapter, CustomAgent, check_agent
from ludus.rl.custom.parts import KeepCustom, as_logger, build_changes, check_custom_agent, unread
from ludus.rl.custom.protocols import ReplayBufferBase
from ludus.rl.off_policy import OffPolicyConfig, OffPolicyEpochsConfig
from ludus.rl.plan import in_steps
from ludus.rl.sampling.sampler import Episodes, SyncSampler
from ludus.rl.sampling.step_processor import NStep, OneStep
from ludus.rl.trainer import RLTrainer
from ludus.session.logger import Logger
from ludus.session.stage_times import StageTimes

# The most steps of every env that one stage takes before learning starts.
_WARM_UP_STEPS = 256


class Nowhere:
    """A buffer that stores nothing."""

    def push(self, *columns: object) -> None:
        """Discard the steps."""


class StepRLTrainer(RLTrainer):
    """Takes an optimisation step every few env steps; with `counted_in: epochs` it is an RLTrainer.

    train
      step until max_opt_steps
        collect                    all env steps up to the next update
        update x due               none before learning starts
          train_step
          evaluate (every evaluate_every_opt_steps)
          record (every log_every_opt_steps, and after an evaluation)
          save (every keep_every_opt_steps)
      finish
    """

    Config: ClassVar[type[Any]] = OffPolicyConfig
    derived: ClassVar[tuple[str, ...]] = (*RLTrainer.derived, "_stage_times")
    config: OffPolicyConfig
    replay_buffer: ReplayBufferBase
    custom_agent: CustomAgent | None = None
    """The agent passed to `train`."""
    custom_processor: Any = None
    custom_buffer: Any = None
    """The buffer passed to `build`."""

    def make_agent(self, spec: EnvSpec) -> Any:
        """Return a new agent for envs of these spaces, or the script's own."""
        if self.custom_agent is None:
            return super().make_agent(spec)
        self.notes.append(unread(self.config))
        max_skips = self.config.replay.capacity
        return AgentAdapter(self.custom_agent, spec, max_skips=max_skips)

    def open(self) -> None:
        """Open the run, and let a custom agent save its own model files."""
        super().open()
        if self.custom_agent is not None:
            self.agent.train()
            keep = self.run.keep_model
            self.run.keep_model = KeepCustom(self.custom_agent, keep, self.model_dir, self.tell)

    def _prepare_data(self, episodes: Episodes) -> None:
        config, agent = self.config, self.agent
        self._stage_times = StageTimes()
        device = self.device if config.replay.on_device else None
        options: dict[str, Any] = {"seed": config.seed, "batch_size": config.batch_size}
        options |= {"device": device} if device else {}
        per = config.replay.prioritised
        if self.custom_buffer is not None:
            self.replay_buffer = self.custom_buffer
        elif per is None:
            self.replay_buffer = ReplayBuffer(agent.layout, config.replay.capacity, **options)
        else:
            self.replay_buffer = PrioritisedReplay(
                agent.layout, config.replay.capacity, config=per, **options
            )
            self.beta = Schedule(
                per.beta_schedule, initial=per.beta, run_steps=self.num_train_steps
            )
        shape = (config.num_envs, agent.layout, config.gamma)
        clipped = None if agent.normaliser is None else agent.normaliser.clipped
        processor = OneStep(*shape) if config.n_step == 1 else NStep(*shape, config.n_step, clipped)
        processor = self.custom_processor or processor
        self.sampler = SyncSampler(self.env, processor, episodes, agent.normaliser)
        self.sampler.begin()

    def plan(self) -> Repeat:
        """Return the plan that the config names."""
        if self.config.counted_in == "epochs":
            return super().plan()
        collect: Work = self._collect_steps
        train_step: Work = self._train_step
        if self._steps.log_compute_cost_every_opt_steps:
            collect = self._stage_times.timed("collect", collect)
            train_step = self._stage_times.timed("train_step", train_step)
        return in_steps(
            self._steps,
            collect=collect,
            train_step=train_step,
            reports=self._reports,
            finish=self._finish,
            agent_info=lambda run: self.agent.describe(),
            compute_cost=self._record_stage_times,
            num_due=self._num_due,
        )

    @property
    def _steps(self) -> StepsConfig:
        """The section of a run that is counted in optimisation steps."""
        assert self.config.steps is not None
        return self.config.steps

    @property
    def _epochs(self) -> OffPolicyEpochsConfig:
        """The section of a run that is counted in epochs."""
        assert self.config.epochs is not None
        return self.config.epochs

    @property
    def _loop(self) -> str:
        """The name of the loop of updates in the plan."""
        return "step" if self.config.counted_in == "epochs" else "update"

    def starting(self) -> StartTarget:
        """Return the networks, the normaliser and the replay buffer, which can start as another run's."""
        found, buffer = super().starting(), self.replay_buffer
        if not isinstance(buffer, ReplayBuffer):
            return found
        return replace(found, parts={**found.parts, "replay": buffer.start_from})

    def _record_stage_times(self, run: Run) -> None:
        for name, value in self._stage_times.take().items():
            run.log.rate(name, value)

    def _collect_steps(self, run: Run) -> None:
        """Take env steps up to the next update, or some of those before learning starts."""
        taken, num_envs = self.sampler.num_env_steps, self.config.num_envs
        interval = self._steps.update_every_env_steps
        wanted = interval - taken % interval
        if (waiting := self.config.learning_starts - taken) > 0:
            wanted = min(waiting, _WARM_UP_STEPS * num_envs)
        push, agent, buffer = self.sampler.sample_and_push, self.agent, self.replay_buffer
        for _ in range(-(-wanted // num_envs)):
            push(agent, buffer)
        run.counters["env_steps"] = self.sampler.num_env_steps

    def _num_due(self, run: Run) -> int:
        """Return the number of multiples of update_every_env_steps that the last step reached or passed."""
        taken, interval = self.sampler.num_env_steps, self._steps.update_every_env_steps
        if taken < self.config.learning_starts or not self.replay_buffer.size:
            return 0
        return int(taken // interval - (taken - self.config.num_envs) // interval)

    def _take_steps(self, add_to_buffer: bool) -> None:
        buffer = self.replay_buffer if add_to_buffer else Nowhere()
        for _ in range(self._epochs.steps_per_epoch):
            self.sampler.sample_and_push(self.agent, buffer)
        if not add_to_buffer:
            # The pending n-step returns of these steps are discarded with them.
            self.sampler.processor.begin(self.env.obs, self.env.masks)

    def updates_note(self) -> str:
        """Return a short note on the number of updates per epoch."""
        return f"{self._epochs.updates_per_env_step:g} for each env step"

    def get_num_updates(self) -> int:
        """Return the number of updates due: none before learning starts, then those of all steps."""
        taken = self.sampler.num_env_steps
        if taken < self.config.learning_starts or not self.replay_buffer.size:
            return 0
        owed = int(taken * self._epochs.updates_per_env_step)
        return max(0, owed - self.run.counters["opt_steps"])

    def _train_step(self, run: Run) -> None:
        if self.custom_agent is not None:
            self._opt(run)
            return
        size, buffer = self.config.batch_size, self.replay_buffer
        if isinstance(buffer, PrioritisedReplay):
            batch = buffer.sample(size, beta=self.beta(run.counters["opt_steps"]))
        else:
            batch = buffer.sample(size)
        self.train_step(batch, run.round(self._loop))
        run.counters["opt_steps"] += 1

    def _opt(self, run: Run) -> None:
        """Call a custom agent's `opt`; if it skips, nothing else happens until it is due again."""
        agent: Any = self.agent
        if agent.opt(self.replay_buffer):
            run.counters["opt_steps"] += 1
        else:
            run.leave(self._loop, "the agent skipped")

    @classmethod
    def build(
        cls,
        config: object,
        env: object = None,
        step_processor: object = None,
        replay_buffer: object = None,
    ) -> Self:
        """Return a trainer of this config with these arguments in place of its sections.

        Each is a section of the config (for the step processor n_step, or a mapping with it); the step
        processor and the buffer can also be custom objects, see ludus.StepProcessorBase and
        ludus.ReplayBufferBase.
        """
        changes, custom_processor, custom_buffer = build_changes(env, step_processor, replay_buffer)
        trainer = cls(given(config).replace(**changes))
        trainer.custom_processor, trainer.custom_buffer = custom_processor, custom_buffer
        trainer.note_given(step_processor=custom_processor, replay_buffer=custom_buffer)
        return trainer

    def train(
        self,
        agent: CustomAgent | None = None,
        recorder: Records | Logger | None = None,
        evaluator: EvaluatorHere | None = None,
        *,
        root: str | None = None,
        name: str | None = None,
        resume: Resume = False,
    ) -> Result:
        """Fit with a custom agent, recorder and evaluator; None uses the config's.

        An agent has `sample(obs)` and `opt(buffer)` (ludus.Agent), a recorder `write(record)`, and an
        evaluator `evaluate(agent)`, which returns a score or a score and a record.
        """
        if agent is not None:
            check_agent(agent)
            self.custom_agent = agent
            self.note_given(agent=agent)
        if recorder is not None:
            self.set_logger(as_logger(recorder, self.config.settings.loggers))
            self.recorder = None if isinstance(recorder, Logger) else recorder
        if evaluator is not None:
            self.set_evaluator(evaluator)
        if self.custom_agent is not None:
            check_custom_agent(self.config, self.model, self.evaluator)
        return self.fit(root=root, name=name, resume=resume)
