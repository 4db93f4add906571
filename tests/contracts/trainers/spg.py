"""Stackelberg policy gradients under a protocol, with agents that learn in turn."""

from __future__ import annotations

import ludus
from tests.arena.sections import parts
from tests.arena.small import MLP, small_arena

REFUSALS = {"waiting": "the rollouts of this iteration are not there"}
LATE = {"kind": "contiguous_periodic", "period": 2, "start": 1, "stop": 2}


def make() -> ludus.Trainer:
    agents = {"verifier": parts(MLP), "prover": parts(MLP, update_schedule=LATE)}
    # Eager: taping second derivatives anew at each resume takes longer than all else.
    changed = {
        "rl.num_epochs": 1,
        "engine": "eager",
        "max_iterations": 2,
        "evaluate_every_iterations": 1,
    }
    return ludus.build_trainer(small_arena("spg", agents=agents, **changed))
