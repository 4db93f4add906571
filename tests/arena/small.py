"""Small real runs of the arena, for tests."""

from __future__ import annotations

import functools
from typing import Any

import ludus
from tests.arena.sections import TINY, parts

# Read once; `replace` makes another.
example = functools.cache(ludus.example)

MLP = {"kind": "mlp", "widths": [8]}
QUIET: dict[str, Any] = {
    "settings.display": "none",
    "settings.loggers": [],
    "settings.threads": 1,
    "settings.device": "cpu",
}
SMALL: dict[str, Any] = {
    "scenario": TINY,
    "agents": {"verifier": parts(MLP), "prover": parts(MLP)},
    "protocol.max_message_rounds": 2,
    "protocol.min_message_rounds": 0,
    "protocol.verifier_first": False,
    "pretraining": None,
    "max_iterations": 3,
    "rl.rollouts_per_iteration": 8,
    "rl.num_epochs": 2,
    "rl.gamma": 1.0,
    "rl.gae_lambda": 1.0,
    "rl.minibatch_size": 8,
    "rl.num_test_iterations": 2,
    "optimizer.learning_rate": 0.01,
    "max_grad_norm": None,
    "engine": "tape",
    "log_every_iterations": 1,
    "keep_every_iterations": 2,
    "evaluate_every_iterations": 2,
    "evaluation.episodes": 8,
}
KL = {"kind": "kl_penalty", "target": 0.01, "beta": 1.0, "increment": 2.0, "decrement": 0.5}

TO_GO = {"reinforce.weight": {"kind": "reward_to_go"}, "rl.loss_critic_type": None}
SOS = {"kind": "sos", "lookahead_rate": 1.0, "scaling": 0.5, "threshold": 0.1}


def small_arena(kind: str = "vanilla_ppo", **changed: Any) -> Any:
    """Return the config of a run that takes well under a second; sections are changed by path."""
    variant = changed.get("spg.variant")
    is_clipped = kind != "reinforce" and (variant is None or "clip_epsilon" in variant)
    # What clips nothing is refused more than one epoch.
    epochs = {} if is_clipped else {"rl.num_epochs": 1}
    return example(kind).replace(**{**QUIET, **SMALL, **epochs, **changed})
