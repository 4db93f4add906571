"""Agents under a protocol: they exchange messages about a datum, and a verifier decides.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.arena.agents.agent import Agent, AgentOutput, AgentParameters
    from ludus.arena.agents.body import Body, BodyFeatures
    from ludus.arena.agents.combined import make_actor, make_critic
    from ludus.arena.analyser import Analyser
    from ludus.arena.build import build_scenario_instance
    from ludus.arena.config import ExperimentSettings, HyperParameters, SubParameters
    from ludus.arena.objectives.objective import KEYS, Objective, has_turn, masked_mean
    from ludus.arena.objectives.reinforce import Reinforce
    from ludus.arena.playing.dataset import ArenaDataset
    from ludus.arena.playing.parallel_env import ParallelEnvMaker
    from ludus.arena.playing.rollout import roll_out
    from ludus.arena.protocol import ACCEPT, REJECT, ProtocolHandler, ProtocolParameters, Turn
    from ludus.arena.rl_config import RlHyperParameters, RlParameters
    from ludus.arena.rl_trainer import TensorDictRlTrainer
    from ludus.arena.scenario import Datasets, Scenario, ScenarioInstance
    from ludus.arena.trainer import ArenaTrainer, TensorDictTrainer
    from ludus.arena.trainers.vanilla_ppo import VanillaPpoTrainer

_WHERE = {
    "ACCEPT": "ludus.arena.protocol",
    "Agent": "ludus.arena.agents.agent",
    "AgentOutput": "ludus.arena.agents.agent",
    "AgentParameters": "ludus.arena.agents.agent",
    "Analyser": "ludus.arena.analyser",
    "ArenaDataset": "ludus.arena.playing.dataset",
    "ArenaTrainer": "ludus.arena.trainer",
    "Body": "ludus.arena.agents.body",
    "BodyFeatures": "ludus.arena.agents.body",
    "Datasets": "ludus.arena.scenario",
    "ExperimentSettings": "ludus.arena.config",
    "HyperParameters": "ludus.arena.config",
    "KEYS": "ludus.arena.objectives.objective",
    "Objective": "ludus.arena.objectives.objective",
    "ParallelEnvMaker": "ludus.arena.playing.parallel_env",
    "ProtocolHandler": "ludus.arena.protocol",
    "ProtocolParameters": "ludus.arena.protocol",
    "REJECT": "ludus.arena.protocol",
    "Reinforce": "ludus.arena.objectives.reinforce",
    "RlHyperParameters": "ludus.arena.rl_config",
    "RlParameters": "ludus.arena.rl_config",
    "Scenario": "ludus.arena.scenario",
    "ScenarioInstance": "ludus.arena.scenario",
    "SubParameters": "ludus.arena.config",
    "TensorDictRlTrainer": "ludus.arena.rl_trainer",
    "TensorDictTrainer": "ludus.arena.trainer",
    "Turn": "ludus.arena.protocol",
    "VanillaPpoTrainer": "ludus.arena.trainers.vanilla_ppo",
    "build_scenario_instance": "ludus.arena.build",
    "has_turn": "ludus.arena.objectives.objective",
    "make_actor": "ludus.arena.agents.combined",
    "make_critic": "ludus.arena.agents.combined",
    "masked_mean": "ludus.arena.objectives.objective",
    "roll_out": "ludus.arena.playing.rollout",
}

__all__ = [
    "ACCEPT",
    "KEYS",
    "REJECT",
    "Agent",
    "AgentOutput",
    "AgentParameters",
    "Analyser",
    "ArenaDataset",
    "ArenaTrainer",
    "Body",
    "BodyFeatures",
    "Datasets",
    "ExperimentSettings",
    "HyperParameters",
    "Objective",
    "ParallelEnvMaker",
    "ProtocolHandler",
    "ProtocolParameters",
    "Reinforce",
    "RlHyperParameters",
    "RlParameters",
    "Scenario",
    "ScenarioInstance",
    "SubParameters",
    "TensorDictRlTrainer",
    "TensorDictTrainer",
    "Turn",
    "VanillaPpoTrainer",
    "build_scenario_instance",
    "has_turn",
    "make_actor",
    "make_critic",
    "masked_mean",
    "roll_out",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
