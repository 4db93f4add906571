"""Reinforcement learning: envs, samplers, agents, evaluators and two trainers.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.nn.actor_critic import head
    from ludus.nn.distributions import best_of
    from ludus.rl.acting import acting_net, discrete_actions
    from ludus.rl.agent import Agent
    from ludus.rl.config import OnPolicyConfig, RLConfig
    from ludus.rl.custom.agent import CustomAgent
    from ludus.rl.custom.protocols import (
        BatchBase,
        Env,
        Recorder,
        ReplayBufferBase,
        Step,
        StepProcessorBase,
    )
    from ludus.rl.export import export_policy
    from ludus.rl.networks._body import features_of, make_body
    from ludus.rl.off_policy import OffPolicyConfig, example_batch
    from ludus.rl.rollout_trainer import RolloutTrainer
    from ludus.rl.sampling.sampler import SyncSampler
    from ludus.rl.step_trainer import StepRLTrainer
    from ludus.rl.trainer import RLTrainer

_WHERE = {
    "Agent": "ludus.rl.agent",
    "BatchBase": "ludus.rl.custom.protocols",
    "CustomAgent": "ludus.rl.custom.agent",
    "Env": "ludus.rl.custom.protocols",
    "OffPolicyConfig": "ludus.rl.off_policy",
    "OnPolicyConfig": "ludus.rl.config",
    "RLConfig": "ludus.rl.config",
    "RLTrainer": "ludus.rl.trainer",
    "Recorder": "ludus.rl.custom.protocols",
    "ReplayBufferBase": "ludus.rl.custom.protocols",
    "RolloutTrainer": "ludus.rl.rollout_trainer",
    "Step": "ludus.rl.custom.protocols",
    "StepProcessorBase": "ludus.rl.custom.protocols",
    "StepRLTrainer": "ludus.rl.step_trainer",
    "SyncSampler": "ludus.rl.sampling.sampler",
    "acting_net": "ludus.rl.acting",
    "best_of": "ludus.nn.distributions",
    "discrete_actions": "ludus.rl.acting",
    "example_batch": "ludus.rl.off_policy",
    "export_policy": "ludus.rl.export",
    "features_of": "ludus.rl.networks._body",
    "head": "ludus.nn.actor_critic",
    "make_body": "ludus.rl.networks._body",
}

__all__ = [
    "Agent",
    "BatchBase",
    "CustomAgent",
    "Env",
    "OffPolicyConfig",
    "OnPolicyConfig",
    "RLConfig",
    "RLTrainer",
    "Recorder",
    "ReplayBufferBase",
    "RolloutTrainer",
    "Step",
    "StepProcessorBase",
    "StepRLTrainer",
    "SyncSampler",
    "acting_net",
    "best_of",
    "discrete_actions",
    "example_batch",
    "export_policy",
    "features_of",
    "head",
    "make_body",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
