"""Small real runs of agents that learn alone, for tests."""

from __future__ import annotations

from typing import Any

from tests.arena.sections import TINY, parts
from tests.arena.small import MLP, QUIET, example

SMALL: dict[str, Any] = {
    # Neither divides by the size of a batch, so that the last ones are smaller.
    "scenario": {**TINY, "train_size": 20, "validation_size": 10},
    "agents": {"verifier": parts(MLP), "prover": parts(MLP)},
    "max_iterations": 3,
    "solo_agent.batch_size": 8,
    "solo_agent.max_message_rounds": 2,
    "optimizer.learning_rate": 0.01,
    "engine": "tape",
    "keep_every_iterations": 2,
    "evaluate_every_iterations": 2,
}


def small_solo(**changed: Any) -> Any:
    """Return the config of a run that takes well under a second; sections are changed by path."""
    return example("solo_agent").replace(**{**QUIET, **SMALL, **changed})
