"""The base classes of trainers in the arena, and which of them to derive from.

    Is your data a TensorDict?   yes   Is a new loss enough?   yes   TensorDictRlTrainer (rl_trainer.py)
                                                               no    TensorDictTrainer
                                 no                                  Trainer

Each is given HyperParameters, and a ScenarioInstance and ExperimentSettings where a script makes its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch

from ludus.arena import loading
from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.analyser import AnalysedRollouts
from ludus.arena.build import build_scenario_instance
from ludus.arena.config import ExperimentParameters, ExperimentSettings
from ludus.arena.initialisation.loading import Loading
from ludus.arena.initialisation.pretraining import Pretraining
from ludus.arena.learning.weights import AgentWeights
from ludus.arena.scenario import NoDatasets, ScenarioInstance
from ludus.core import Repeat, Run, Stage, Stateful, trainer as core
from ludus.core.errors import ConfigError, LudusError
from ludus.core.intervals import Work
from ludus.core.object_walker import digest_of
from ludus.nn.swapped_weights import restored
from ludus.seeds import derive, forked
from ludus.session.device import resolve_device
from ludus.session.reports import keep
from ludus.session.trainer import SessionServices
from ludus.show.progress import total_iterations


class Trainer(core.Trainer):
    """Owns the whole process of an experiment: training, logging, checkpoints, tests, saved models.

    Derive it where data are not a TensorDict, and define `train`: set the seed, run the training loop,
    run the test loop, save the models. It is one stage: `fit` calls it, in a run directory, and after a
    kill it begins again.
    """

    services = SessionServices()
    config: ExperimentParameters

    def __init__(
        self,
        hyper_params: object,
        scenario_instance: ScenarioInstance | None = None,
        settings: ExperimentSettings | None = None,
    ) -> None:
        super().__init__(hyper_params)
        if settings is not None:
            self.config = self.config.replace(settings=settings)
        self.given_instance = scenario_instance
        self.note_given(scenario_instance=scenario_instance)

    def set_model(self, model: object) -> NoReturn:
        """Raise an error: the model would never be trained."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' trains the agents of its scenario instance, so"
            f" {type(model).__name__} would never be; register it as a body or an agent, or give the trainer"
            " a ScenarioInstance"
        )

    def set_evaluator(self, evaluator: object) -> NoReturn:
        """Raise an error: the evaluator would never be called."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' is judged as its section 'evaluation' says, so"
            f" {type(evaluator).__name__} would never be asked; change that section, or evaluate in a hook:"
            " after_evaluate"
        )

    @property
    def hyper_params(self) -> ExperimentParameters:
        """The parameters of the experiment."""
        return self.config

    @property
    def settings(self) -> ExperimentSettings:
        """The settings that do not affect the result: device, display, loggers, checkpoints."""
        return self.config.settings

    @property
    def num_total_iterations(self) -> int:
        """The number of iterations of all phases with a progress bar, pretraining included."""
        pretraining = getattr(self.config, "pretraining", None)
        return total_iterations(self) + (0 if pretraining is None else pretraining.iterations)

    def train(self) -> None:
        """Set the seed, train, test and save the models; called by `fit`, which sets the seed."""
        raise LudusError(
            f"{type(self).__name__} has no train(); define it: run the training loop, run the test loop, save"
            " the models"
        )

    def plan(self) -> Repeat:
        """Return the whole of `train` as one stage."""
        work = self._as_stage("run", self.train)
        return Repeat(name="train", times=1, body=(*self._first_nodes(), work))

    def _first_nodes(self) -> tuple[Stage | Repeat, ...]:
        """Return the stages before training."""
        return ()

    @staticmethod
    def _as_stage(name: str, method: Callable[[], Mapping[str, Any] | None]) -> Stage:
        def work(run: Run) -> Mapping[str, Any] | None:
            return method()

        return Stage(name=name, work=work)

    def parts(self) -> Mapping[str, Stateful]:
        """Return the saved parts: none here, as `train` is one stage."""
        return {}


ArenaTrainer = Trainer
"""The same, under a name that is unique among the families of trainers."""


class NotBuiltError(LudusError, AttributeError):
    """An attribute of a trainer was read before `fit`, which builds it."""

    def __init__(self, trainer: str, name: str) -> None:
        super().__init__(
            f"{trainer}.{name} is there once fit() has begun, which builds it; read it in a hook or after"
            " fit(), or build a scenario instance before and give it to the trainer:"
            f" {trainer}(config, ludus.build_scenario_instance(config))"
        )


class TensorDictTrainer(Trainer):
    """A trainer of agents that are networks, with its own loops.

    train
      run_train_loop
      run_test_loop
      save_models

    Define `_run_train_loop` and `_run_test_loop`, or `train` whole. Each is one stage: after a kill it
    begins again, from the agents as they were. To be saved within a loop, return a finer `plan`.
    """

    trainer_type: ClassVar[str] = "rl"
    """The heads the agents are built with: `rl` policy and value, `solo_agent` the solo head."""
    built_by_fit: ClassVar[tuple[str, ...]] = ("scenario_instance", "agents", "device")
    """The attributes that exist from the beginning of `fit` on."""

    kept = loading.kept
    pretraining: Pretraining | None = None
    scenario_instance: ScenarioInstance
    watched: AnalysedRollouts

    if not TYPE_CHECKING:  # a type checker would otherwise accept every misspelt attribute

        def __getattr__(self, name: str) -> Any:
            """Return what a script gave, or raise an error that says when the attribute exists."""
            given = vars(self).get("given_instance")
            if given is not None and name in ("scenario_instance", "agents"):
                return given if name == "scenario_instance" else given.agents
            if name in type(self).built_by_fit:
                raise NotBuiltError(type(self).__name__, name)
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def prepare(self, *, max_steps: int | None) -> None:
        """Build the scenario instance."""
        super().prepare(max_steps=max_steps)
        self._build()

    def built_agents(self) -> CombinedAgents:
        """Build the scenario instance, and return its agents in eval mode."""
        self.device = resolve_device(self.config.settings.device)
        if self.given_instance is not None:
            check_given(self.given_instance, self.config)
        self.scenario_instance = self.given_instance or self._make_instance()
        self.agents: CombinedAgents = self.scenario_instance.agents
        return self.agents.eval()

    def _build(self) -> None:
        self.built_agents()
        self._loading = Loading(self.config, self.agents)
        self._loading.check(self.run)

    def close(self) -> None:
        """Close the environments, unless a script has made them."""
        if self.given_instance is None and "scenario_instance" in vars(self):
            with ExitStack() as stack:  # a failure does not prevent closing the others
                for environment in reversed(self.scenario_instance.environments):
                    stack.callback(environment.close)

    def _first_nodes(self) -> tuple[Stage | Repeat, ...]:
        """Return the stage that loads agents of earlier runs, and pretraining, where configured."""
        more = () if self.pretraining is None else self.pretraining.nodes()
        return (*self._loading.stages(), *more)

    def _make_instance(self) -> ScenarioInstance:
        return build_scenario_instance(
            self.config, device=self.device, trainer_type=self.trainer_type
        )

    def train(self) -> None:
        """Train, test and save the models, each in its context; `fit` sets the seed and calls it."""
        if "agents" not in vars(self):
            raise LudusError(
                "nothing is built before fit(), which calls train(); call trainer.fit()"
            )
        self._train_in_context()
        self._test_in_context()
        self._save_models()

    def _train_in_context(self) -> None:
        with ExitStack() as stack:
            self._build_train_context(stack)
            self._run_train_loop()

    def _test_in_context(self) -> None:
        with self._as_tested():
            self._run_test_loop()

    @contextlib.contextmanager
    def _as_tested(self) -> Iterator[None]:
        """Put the agents in test mode inside the block, and restore their state after it."""
        with restored(self.agents), ExitStack() as stack:
            self._build_test_context(stack)
            yield

    def _build_train_context(self, stack: ExitStack) -> None:
        """Enable gradients and train mode until the stack closes."""
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_mode(self.agents, is_training=True))

    def _build_test_context(self, stack: ExitStack) -> None:
        """Disable gradients, set eval mode, and draw from separate generators."""
        stack.enter_context(torch.no_grad())
        stack.enter_context(_mode(self.agents, is_training=False))
        stack.enter_context(forked(derive(self.config.seed, "arena/test")))

    def _run_train_loop(self) -> None:
        raise LudusError(
            f"{type(self).__name__} has no _run_train_loop; define it, or train(), or derive it from"
            " TensorDictRlTrainer, which needs a loss alone"
        )

    def _run_test_loop(self) -> None:
        """Do nothing, unless it is overridden."""

    def _save_models(self) -> None:
        """Keep the weights of all agents in models/final."""
        keep(self.run, "models/final", self.weights())

    def weights(self) -> dict[str, torch.Tensor]:
        """Return a copy, on the CPU, of the weights of all agents."""
        return AgentWeights(self.agents).weights()

    def plan(self) -> Repeat:
        """Return the training loop, the test loop and saving, or `train` whole where it is overridden."""
        if type(self).train is not TensorDictTrainer.train:
            return super().plan()
        save = Stage(name="save_models", work=lambda run: self._save_models(), always=True)
        body = (
            *self._first_nodes(),
            self._as_stage("run_train_loop", self._train_in_context),
            self._as_stage("run_test_loop", self._test_in_context),
            save,
        )
        return Repeat(name="train", times=1, body=body)

    def consulted(self) -> Mapping[str, object]:
        """Return the scenario, the protocol and the analysers."""
        instance = vars(self).get("scenario_instance")
        if instance is None:
            return {}
        analysers = self.watched.analysers if "watched" in vars(self) else {}
        asked = {"scenario": instance.scenario, "protocol": instance.protocol_handler}
        return asked | {f"analyser {kind}": one for kind, one in analysers.items()}

    def data_facts(self) -> Mapping[str, str]:
        """Return the fingerprints of the scenario's datasets; a scenario made of environments has none."""
        datasets = self.scenario_instance.datasets
        if isinstance(datasets, NoDatasets):
            return {}
        named = {"training": datasets.train, "validation": datasets.validation}
        named["test"] = datasets.test
        return {role: digest_of([dict(one.data), one.y]) for role, one in named.items()}

    def parts(self) -> Mapping[str, Stateful]:
        """Return the agents."""
        return {"agents": AgentWeights(self.agents)}


def within(build: Callable[[ExitStack], None] | None, work: Work) -> Work:
    """Return work that is done in a context; None: unchanged."""
    if build is None:
        return work

    def done(run: Run) -> Mapping[str, Any] | None:
        with ExitStack() as stack:
            build(stack)
            return work(run)

    return done


@contextlib.contextmanager
def _mode(agents: CombinedAgents, *, is_training: bool) -> Iterator[None]:
    agents.train(is_training)
    try:
        yield
    finally:
        agents.eval()


def check_given(instance: ScenarioInstance, config: ExperimentParameters) -> None:
    """Raise ConfigError unless a script's own scenario instance matches the config."""
    names, described = instance.agents.names, config.handler().agent_names
    if names != described:
        raise ConfigError(
            f"the scenario instance has the agents {', '.join(names)}, but the config describes"
            f" {', '.join(described)}; build it from this config (ludus.build_scenario_instance)"
        )
    rl, evaluation = getattr(config, "rl", None), getattr(config, "evaluation", None)
    if rl is None or evaluation is None:
        return
    environment, steps = instance.train_environment, config.frames_per_batch  # type: ignore[attr-defined]
    there = {
        "rl.rollouts_per_iteration": (environment.num_envs, rl.rollouts_per_iteration),
        "steps of an iteration": (environment.num_envs * environment.num_steps, steps),
        "evaluation.episodes": (instance.validation_environment.num_envs, evaluation.episodes),
    }
    for what, (found, wanted) in there.items():
        if found != wanted:
            raise ConfigError(
                f"the scenario instance was built for {found} {what}, but the config says {wanted}; build it"
                " from this config (ludus.build_scenario_instance)"
            )
