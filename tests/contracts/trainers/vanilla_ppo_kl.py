"""PPO with a KL penalty, whose factor is steered, and with agents that learn in turn."""

from __future__ import annotations

import ludus
from tests.arena.sections import parts
from tests.arena.small import KL, MLP, small_arena

REFUSALS = {"waiting": "the rollouts of this iteration are not there"}


def _turns(*, first: bool) -> dict[str, object]:
    return {"kind": "alternating_periodic", "period": 2, "num_first": 1, "learns_first": first}


def make() -> ludus.Trainer:
    agents = {
        "verifier": parts(MLP, update_schedule=_turns(first=True)),
        "prover": parts(MLP, update_schedule=_turns(first=False)),
    }
    changed = {
        "evaluate_every_iterations": 1,
        "max_iterations": 2,
        "ppo.loss": {**KL, "target": 1e-6},
        "rl.shared_body": False,
        "agents": agents,
    }
    return ludus.build_trainer(small_arena(**changed))
