"""ludus: one library and one command for everything that learns.

Names are imported when first used, so that `import ludus` costs little and brings in no torch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names
from ludus.version import VERSION as __version__  # noqa: N811

if sys.platform == "win32":
    raise ImportError("ludus runs on Linux (and, with best effort, macOS); on Windows use WSL")

if TYPE_CHECKING:
    from ludus.active.models.features import ActiveModel
    from ludus.active.trainers.active import ActiveTrainer
    from ludus.arena.agents.body import Body
    from ludus.arena.agents.combined import make_actor, make_critic
    from ludus.arena.analyser import Analyser
    from ludus.arena.build import build_scenario_instance
    from ludus.arena.config import ExperimentSettings, HyperParameters, SubParameters
    from ludus.arena.objectives.objective import Objective
    from ludus.arena.playing.rollout import roll_out
    from ludus.arena.protocol import ProtocolHandler
    from ludus.arena.rl_config import RlHyperParameters, RlParameters
    from ludus.arena.rl_trainer import TensorDictRlTrainer
    from ludus.arena.scenario import Scenario, ScenarioInstance
    from ludus.arena.trainer import ArenaTrainer, TensorDictTrainer
    from ludus.config.base import StrictConfig, TrainerConfig, read_config
    from ludus.config.families import declare
    from ludus.config.registry import TrainerType, load_plugin, register, register_trainer
    from ludus.core.errors import LudusError
    from ludus.core.plan import Repeat, Stage
    from ludus.core.run import Run
    from ludus.core.runtime import Result
    from ludus.data.replay.ring import ReplayBuffer
    from ludus.example_configs import example
    from ludus.judge.async_evaluator import AsyncEvaluator
    from ludus.judge.evaluator import Evaluator
    from ludus.judge.judge import Judge
    from ludus.judge.scores import Score
    from ludus.nn.export.numpy_policy import NumpyPolicy
    from ludus.nn.model import Model
    from ludus.nn.schedules import Scheduler
    from ludus.rl.custom.protocols import (
        Agent,
        BatchBase,
        Env,
        Recorder,
        ReplayBufferBase,
        Step,
        StepProcessorBase,
    )
    from ludus.rl.export import export_policy
    from ludus.rl.sampling.sampler import SyncSampler
    from ludus.rl.step_trainer import StepRLTrainer
    from ludus.rl.trainer import RLTrainer
    from ludus.session.build import build_trainer
    from ludus.session.logger import Logger
    from ludus.session.record import Record
    from ludus.show.progress import IterationContext, attach_progress_bar
    from ludus.store.places import open_storage
    from ludus.store.storage import Storage
    from ludus.supervised.trainer import BaseTrainer
    from ludus.supervised.trainers.supervised import Trainer

_WHERE = {
    "ActiveModel": "ludus.active.models.features",
    "ActiveTrainer": "ludus.active.trainers.active",
    "Agent": "ludus.rl.custom.protocols",
    "Analyser": "ludus.arena.analyser",
    "ArenaTrainer": "ludus.arena.trainer",
    "AsyncEvaluator": "ludus.judge.async_evaluator",
    "BaseTrainer": "ludus.supervised.trainer",
    "BatchBase": "ludus.rl.custom.protocols",
    "Body": "ludus.arena.agents.body",
    "Env": "ludus.rl.custom.protocols",
    "Evaluator": "ludus.judge.evaluator",
    "ExperimentSettings": "ludus.arena.config",
    "HyperParameters": "ludus.arena.config",
    "IterationContext": "ludus.show.progress",
    "Judge": "ludus.judge.judge",
    "Logger": "ludus.session.logger",
    "LudusError": "ludus.core.errors",
    "Model": "ludus.nn.model",
    "NumpyPolicy": "ludus.nn.export.numpy_policy",
    "Objective": "ludus.arena.objectives.objective",
    "ProtocolHandler": "ludus.arena.protocol",
    "RLTrainer": "ludus.rl.trainer",
    "Record": "ludus.session.record",
    "Recorder": "ludus.rl.custom.protocols",
    "Repeat": "ludus.core.plan",
    "ReplayBuffer": "ludus.data.replay.ring",
    "ReplayBufferBase": "ludus.rl.custom.protocols",
    "Result": "ludus.core.runtime",
    "RlHyperParameters": "ludus.arena.rl_config",
    "RlParameters": "ludus.arena.rl_config",
    "Run": "ludus.core.run",
    "Scenario": "ludus.arena.scenario",
    "ScenarioInstance": "ludus.arena.scenario",
    "Scheduler": "ludus.nn.schedules",
    "Score": "ludus.judge.scores",
    "Stage": "ludus.core.plan",
    "Step": "ludus.rl.custom.protocols",
    "StepProcessorBase": "ludus.rl.custom.protocols",
    "StepRLTrainer": "ludus.rl.step_trainer",
    "Storage": "ludus.store.storage",
    "StrictConfig": "ludus.config.base",
    "SubParameters": "ludus.arena.config",
    "SyncSampler": "ludus.rl.sampling.sampler",
    "TensorDictRlTrainer": "ludus.arena.rl_trainer",
    "TensorDictTrainer": "ludus.arena.trainer",
    "Trainer": "ludus.supervised.trainers.supervised",
    "TrainerConfig": "ludus.config.base",
    "TrainerType": "ludus.config.registry",
    "attach_progress_bar": "ludus.show.progress",
    "build_scenario_instance": "ludus.arena.build",
    "build_trainer": "ludus.session.build",
    "declare": "ludus.config.families",
    "example": "ludus.example_configs",
    "export_policy": "ludus.rl.export",
    "load_plugin": "ludus.config.registry",
    "make_actor": "ludus.arena.agents.combined",
    "make_critic": "ludus.arena.agents.combined",
    "open_storage": "ludus.store.places",
    "read_config": "ludus.config.base",
    "register": "ludus.config.registry",
    "register_trainer": "ludus.config.registry",
    "roll_out": "ludus.arena.playing.rollout",
}

__all__ = [
    "ActiveModel",
    "ActiveTrainer",
    "Agent",
    "Analyser",
    "ArenaTrainer",
    "AsyncEvaluator",
    "BaseTrainer",
    "BatchBase",
    "Body",
    "Env",
    "Evaluator",
    "ExperimentSettings",
    "HyperParameters",
    "IterationContext",
    "Judge",
    "Logger",
    "LudusError",
    "Model",
    "NumpyPolicy",
    "Objective",
    "ProtocolHandler",
    "RLTrainer",
    "Record",
    "Recorder",
    "Repeat",
    "ReplayBuffer",
    "ReplayBufferBase",
    "Result",
    "RlHyperParameters",
    "RlParameters",
    "Run",
    "Scenario",
    "ScenarioInstance",
    "Scheduler",
    "Score",
    "Stage",
    "Step",
    "StepProcessorBase",
    "StepRLTrainer",
    "Storage",
    "StrictConfig",
    "SubParameters",
    "SyncSampler",
    "TensorDictRlTrainer",
    "TensorDictTrainer",
    "Trainer",
    "TrainerConfig",
    "TrainerType",
    "__version__",
    "attach_progress_bar",
    "build_scenario_instance",
    "build_trainer",
    "declare",
    "example",
    "export_policy",
    "load_plugin",
    "make_actor",
    "make_critic",
    "open_storage",
    "read_config",
    "register",
    "register_trainer",
    "roll_out",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
