"""Host and agent on tensors: batch norm, schedules that move, rewards that remember, an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

import ludus
from ludus.games.trainers.fused_dqn import DQNTrainer
from tests.games.dqn.small import small_dqn

# Nobody draws from the global generators.
INERT = ("random",)
EMPTY = "is empty, so nothing can be drawn"
REFUSALS = {"host_replay": EMPTY, "agent_replay": EMPTY}


class Growing:
    """Rewards that grow with every rollout: a state of a script's own."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, role: str, obs: object, next_obs: object, dones: Tensor) -> Tensor:
        self.num_calls += 1
        return dones.float() * (1 if role == "host" else -1) * self.num_calls

    def state_dict(self) -> dict[str, Any]:
        return {"num_calls": self.num_calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.num_calls = state["num_calls"]


def make() -> ludus.Trainer:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": None}
    changes: dict[str, object] = {"max_rounds": 3, "evaluate_every_rounds": 2}
    changes |= {"engine": "eager", "keep_every_rounds": 3, "evaluation.episodes": 6}
    changes |= {"host.learning_rate_schedule": falling, "agent.exploration.schedule": falling}
    changes |= {f"{role}.sync_target_every_rounds": 2 for role in ("host", "agent")}
    return DQNTrainer(small_dqn(layerwise_logging=True, **changes), reward_func=Growing())
