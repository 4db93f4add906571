"""ludus: one library and one command for everything that learns.

Names are imported when first used, so that `import ludus` costs little and brings in no torch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names
from ludus.version import VERSION

__version__ = VERSION

if sys.platform == "win32":
    raise ImportError("ludus runs on Linux (and, with best effort, macOS); on Windows use WSL")

if TYPE_CHECKING:
    from ludus.active.models.features import ActiveModel as ActiveModel
    from ludus.active.trainers.active import ActiveTrainer as ActiveTrainer
    from ludus.arena.agents.body import Body as Body
    from ludus.arena.agents.combined import make_actor as make_actor, make_critic as make_critic
    from ludus.arena.analyser import Analyser as Analyser
    from ludus.arena.build import build_scenario_instance as build_scenario_instance
    from ludus.arena.config import (
        ExperimentSettings as ExperimentSettings,
        HyperParameters as HyperParameters,
    )
    from ludus.arena.objectives.objective import Objective as Objective
    from ludus.arena.playing.rollout import roll_out as roll_out
    from ludus.arena.protocol import ProtocolHandler as ProtocolHandler
    from ludus.arena.rl_config import (
        RlHyperParameters as RlHyperParameters,
        RlParameters as RlParameters,
    )
    from ludus.arena.rl_trainer import TensorDictRlTrainer as TensorDictRlTrainer
    from ludus.arena.rules import SubParameters as SubParameters
    from ludus.arena.scenario import Scenario as Scenario, ScenarioInstance as ScenarioInstance
    from ludus.arena.trainer import (
        ArenaTrainer as ArenaTrainer,
        TensorDictTrainer as TensorDictTrainer,
    )
    from ludus.cli.exporting import export as export
    from ludus.config.base import (
        StrictConfig as StrictConfig,
        TrainerConfig as TrainerConfig,
        read_config as read_config,
    )
    from ludus.config.families import declare as declare
    from ludus.config.registry import (
        TrainerType as TrainerType,
        load_plugin as load_plugin,
        register as register,
        register_trainer as register_trainer,
    )
    from ludus.core.errors import LudusError as LudusError
    from ludus.core.plan import Repeat as Repeat, Stage as Stage
    from ludus.core.run import Run as Run
    from ludus.core.runtime import Result as Result
    from ludus.data.replay.ring import ReplayBuffer as ReplayBuffer
    from ludus.example_configs import example as example
    from ludus.judge.async_evaluator import AsyncEvaluator as AsyncEvaluator
    from ludus.judge.evaluator import Evaluator as Evaluator
    from ludus.judge.judge import Judge as Judge
    from ludus.judge.scores import Score as Score
    from ludus.nn.export.numpy_policy import NumpyPolicy as NumpyPolicy
    from ludus.nn.model import Model as Model
    from ludus.nn.schedules import Scheduler as Scheduler
    from ludus.rl.custom.protocols import (
        Agent as Agent,
        BatchBase as BatchBase,
        Env as Env,
        Recorder as Recorder,
        ReplayBufferBase as ReplayBufferBase,
        Step as Step,
        StepProcessorBase as StepProcessorBase,
    )
    from ludus.rl.export import export_policy as export_policy
    from ludus.rl.policy import Policy as Policy
    from ludus.rl.sampling.sampler import SyncSampler as SyncSampler
    from ludus.rl.step_trainer import StepRLTrainer as StepRLTrainer
    from ludus.rl.trainer import RLTrainer as RLTrainer
    from ludus.session.build import build_trainer as build_trainer
    from ludus.session.loading import load as load
    from ludus.session.logger import Logger as Logger
    from ludus.session.record import Record as Record
    from ludus.show.frames import Results as Results, results as results
    from ludus.show.plot import plot as plot
    from ludus.show.progress import (
        IterationContext as IterationContext,
        attach_progress_bar as attach_progress_bar,
    )
    from ludus.store.places import open_storage as open_storage
    from ludus.store.storage import Storage as Storage
    from ludus.supervised.trainer import BaseTrainer as BaseTrainer
    from ludus.supervised.trainers.supervised import Trainer as Trainer
    from ludus.sweep.config import SweepConfig as SweepConfig
    from ludus.sweep.seed_group import train_seeds as train_seeds
    from ludus.sweep.seed_results import SeedResult as SeedResult, SeedsResult as SeedsResult
    from ludus.sweep.sweeper import Sweeper as Sweeper
    from ludus.sweep.trials import SweepResult as SweepResult
    from ludus.text.analyser import TextAnalyser as TextAnalyser
    from ludus.text.chat import (
        ChatAnswer as ChatAnswer,
        ChatMessage as ChatMessage,
        ChatRequest as ChatRequest,
    )
    from ludus.text.config import TextHyperParameters as TextHyperParameters
    from ludus.text.groups import PureTextSharedModelGroup as PureTextSharedModelGroup
    from ludus.text.nested.array_dict import NestedArrayDict as NestedArrayDict
    from ludus.text.provider import Provider as Provider
    from ludus.text.scenario import (
        TextDataset as TextDataset,
        TextDatasets as TextDatasets,
        TextScenario as TextScenario,
    )
    from ludus.text.trainer import PureTextRlTrainer as PureTextRlTrainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
    __all__ += ["__version__"]
