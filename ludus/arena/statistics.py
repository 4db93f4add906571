"""Statistics of rollouts: what each agent gains, and how often the verifier is right.

Shapes: B episodes, T steps, A agents.
"""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from torch import Tensor

from ludus.arena.environment import Environment, MessageEnvironment
from ludus.arena.protocol import CONTINUE

Statistics = dict[str, Tensor]


def rollout_statistics(rollouts: TensorDictBase, environment: Environment) -> Statistics:
    """Return numbers, as tensors of no dimension, that describe (B, T) steps."""
    rewards_BA = rollouts["next", "agents", "reward"].squeeze(-1).sum(1)
    found: Statistics = {}
    for index, name in enumerate(environment.agent_names):
        found[f"{name}/reward"] = rewards_BA[:, index].double().mean()
        found[f"{name}/entropy"] = _of_turns(rollouts, "entropy", index)
    found["rounds"] = rollouts["mask"].sum(1).double().mean()
    if isinstance(environment, MessageEnvironment):
        found |= _of_decisions(rollouts, environment)
    return found


def _of_turns(rollouts: TensorDictBase, name: str, index: int) -> Tensor:
    agents = rollouts["agents"]
    turns_BT = agents["decision_mask"][..., index] | agents["message_mask"][..., index, :].any(-1)
    values_BT = agents[name][..., index].double()
    mean: Tensor = (values_BT * turns_BT).sum() / turns_BT.sum().clamp_min(1)
    return mean


def _of_decisions(rollouts: TensorDictBase, environment: MessageEnvironment) -> Statistics:
    """Return how often the verifiers decide, and how often rightly."""
    verdict_B = verdicts(rollouts, environment)
    y_B = rollouts["y"][:, 0]
    right_B = (verdict_B == y_B).double()
    return {
        "accuracy": right_B.mean(),
        "decided": (verdict_B != CONTINUE).double().mean(),
    }


def verdicts(rollouts: TensorDictBase, environment: MessageEnvironment) -> Tensor:
    """Return (B,) the decision of the first verifier, CONTINUE where the rounds ran out."""
    handler = environment.handler
    judge = handler.indices(handler.verifier_names)[0]
    seed_B, y_B = rollouts["seed"][:, 0], rollouts["y"][:, 0]
    verdict_B: Tensor = torch.full_like(y_B, CONTINUE)
    for step in range(rollouts.batch_size[1]):
        may_B = handler.deciders(step, seed_B)[:, judge] & rollouts["mask"][:, step]
        said_BA = handler.forced(rollouts["agents", "action"][:, step, :, 0], y_B)
        verdict_B = torch.where(may_B, said_BA[:, judge], verdict_B)
    return verdict_B
