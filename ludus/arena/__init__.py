"""Agents under a protocol: they exchange messages about a datum, and a verifier decides.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.arena.agents.agent import (
        Agent as Agent,
        AgentOutput as AgentOutput,
        AgentParameters as AgentParameters,
    )
    from ludus.arena.agents.body import Body as Body, BodyFeatures as BodyFeatures
    from ludus.arena.agents.combined import make_actor as make_actor, make_critic as make_critic
    from ludus.arena.analyser import Analyser as Analyser
    from ludus.arena.build import build_scenario_instance as build_scenario_instance
    from ludus.arena.config import (
        ExperimentSettings as ExperimentSettings,
        HyperParameters as HyperParameters,
    )
    from ludus.arena.objectives.objective import (
        KEYS as KEYS,
        Objective as Objective,
        has_turn as has_turn,
        masked_mean as masked_mean,
    )
    from ludus.arena.objectives.reinforce import Reinforce as Reinforce
    from ludus.arena.playing.dataset import ArenaDataset as ArenaDataset
    from ludus.arena.playing.parallel_env import ParallelEnvMaker as ParallelEnvMaker
    from ludus.arena.playing.rollout import roll_out as roll_out
    from ludus.arena.protocol import (
        ACCEPT as ACCEPT,
        REJECT as REJECT,
        ProtocolHandler as ProtocolHandler,
        ProtocolParameters as ProtocolParameters,
        Turn as Turn,
    )
    from ludus.arena.rl_config import (
        RlHyperParameters as RlHyperParameters,
        RlParameters as RlParameters,
    )
    from ludus.arena.rl_trainer import TensorDictRlTrainer as TensorDictRlTrainer
    from ludus.arena.rules import SubParameters as SubParameters
    from ludus.arena.scenario import (
        Datasets as Datasets,
        Scenario as Scenario,
        ScenarioInstance as ScenarioInstance,
    )
    from ludus.arena.trainer import (
        ArenaTrainer as ArenaTrainer,
        TensorDictTrainer as TensorDictTrainer,
    )
    from ludus.arena.trainers.vanilla_ppo import VanillaPpoTrainer as VanillaPpoTrainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
