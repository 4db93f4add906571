"""Host and agent on tensors, with batch norm, both schedules moving, and an evaluation half way."""

from __future__ import annotations

import ludus
from tests.games.dqn.small import small_dqn

# Nobody draws from the global generators.
INERT = ("random",)
EMPTY = "is empty, so nothing can be drawn"
REFUSALS = {"host_replay": EMPTY, "agent_replay": EMPTY}


def make() -> ludus.Trainer:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": None}
    changes: dict[str, object] = {"max_rounds": 3, "evaluation.every_rounds": 2}
    changes |= {"engine": "eager", "save_every_rounds": 3, "evaluation.games": 6}
    changes |= {"host.learning_rate_schedule": falling, "agent.exploration.schedule": falling}
    changes |= {f"{role}.steps_before_update_target": 2 for role in ("host", "agent")}
    return ludus.build_trainer(small_dqn(layerwise_logging=True, **changes))
