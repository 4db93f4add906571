"""Statistics of rollouts: what each agent gains, and how often the verifier is right.

Shapes: B episodes, T steps, A agents.
"""

from __future__ import annotations

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
    """Return how often the verifiers decide and how often rightly, of the episodes they are to decide."""
    verdict_B = verdicts(rollouts)
    y_B, seed_B = rollouts["y"][:, 0], rollouts["seed"][:, 0]
    judged_B = environment.handler.judged(seed_B)
    count = judged_B.sum().clamp_min(1)
    return {
        "accuracy": ((verdict_B == y_B) & judged_B).sum().double() / count,
        "decided": ((verdict_B != CONTINUE) & judged_B).sum().double() / count,
    }


def verdicts(rollouts: TensorDictBase) -> Tensor:
    """Return (B,) the decision that counted, forced or not; CONTINUE where the rounds ran out."""
    # One at most in an episode, and less than CONTINUE.
    found: Tensor = rollouts["next", "verdict"].amin(1)
    return found
