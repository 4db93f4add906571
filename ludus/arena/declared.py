"""What the arena adds to the words of the library."""

from __future__ import annotations

from typing import Any

from ludus.config.families import declare
from ludus.config.migrations import has_keys, sections_of


def _to_3(data: dict[str, Any]) -> dict[str, Any]:
    """Give each key that version 3 added the value that version 2 behaved by."""
    for section in sections_of(data):
        # A debate and mnip are protocols by themselves, or the base of another.
        if section.get("kind") == "debate" and has_keys(section, "sequential", "prover_reward"):
            section.setdefault("verifier_first", False)
            section.setdefault("prover0_first", True if section["sequential"] else None)
        if section.get("kind") == "mnip" and has_keys(section, "verifier_first", "prover_reward"):
            section.setdefault("sequential", False)
            section.setdefault("prover0_first", None)
    if has_keys(spg := data.get("spg"), "variant", "critic_coef"):
        spg.setdefault("stackelberg_sequence", None)
    return data


declare(
    "ludus.arena",
    categories={
        "protocol": "protocols",
        "scenario": "scenarios",
        "arena_agent": "agents/kinds",
        "body": "agents/bodies",
        "analyser": "analysers",
        "parallel_env": "parallel_envs",
    },
    lengths={"max_iterations": "iteration"},
    directions={"accuracy": "max"},
    migrations={2: _to_3},
    needs={"torchrl": "ludus[arena]", "tensordict": "ludus[arena]", "pettingzoo": "ludus[arena]"},
    other_names={
        "num_iterations": ("max_iterations",),
        "lr": ("optimizer.learning_rate",),
        "lmbda": ("rl.gae_lambda",),
        "n_epochs": ("rl.num_epochs",),
        "batch_size": ("rl.minibatch_size",),
        "clip_range": ("ppo.loss.clip_epsilon",),
        "ent_coef": ("ppo.entropy_coef", "reinforce.entropy_coef", "spg.entropy_coef"),
    },
)
