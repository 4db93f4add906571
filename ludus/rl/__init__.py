"""Reinforcement learning: envs, samplers, agents, evaluators and two trainers.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.nn.actor_critic import head as head
    from ludus.nn.distributions import best_of as best_of
    from ludus.rl.acting import acting_net as acting_net, discrete_actions as discrete_actions
    from ludus.rl.agent import Agent as Agent
    from ludus.rl.config import OnPolicyConfig as OnPolicyConfig, RLConfig as RLConfig
    from ludus.rl.custom.agent import CustomAgent as CustomAgent
    from ludus.rl.custom.protocols import (
        BatchBase as BatchBase,
        Env as Env,
        Recorder as Recorder,
        ReplayBufferBase as ReplayBufferBase,
        Step as Step,
        StepProcessorBase as StepProcessorBase,
    )
    from ludus.rl.export import export_policy as export_policy
    from ludus.rl.networks._body import features_of as features_of, make_body as make_body
    from ludus.rl.off_policy import (
        OffPolicyConfig as OffPolicyConfig,
        example_batch as example_batch,
    )
    from ludus.rl.policy import Policy as Policy
    from ludus.rl.rollout_trainer import RolloutTrainer as RolloutTrainer
    from ludus.rl.sampling.sampler import SyncSampler as SyncSampler
    from ludus.rl.step_trainer import StepRLTrainer as StepRLTrainer
    from ludus.rl.trainer import RLTrainer as RLTrainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
