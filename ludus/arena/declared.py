"""Registrations of the arena: its kinds and config migrations."""

from __future__ import annotations

from typing import Any

from ludus.config.families import declare
from ludus.config.migrations import has_keys, rename_keys, sections_of


def _to_3(data: dict[str, Any]) -> dict[str, Any]:
    """Add each key of version 3, with the value that version 2 behaved by."""
    for section in sections_of(data):
        # A debate and mnip are separate protocols, or the base of another.
        if section.get("kind") == "debate" and has_keys(section, "sequential", "prover_reward"):
            section.setdefault("verifier_first", False)
            section.setdefault("prover0_first", True if section["sequential"] else None)
        if section.get("kind") == "mnip" and has_keys(section, "verifier_first", "prover_reward"):
            section.setdefault("sequential", False)
            section.setdefault("prover0_first", None)
    if has_keys(spg := data.get("spg"), "variant", "critic_coef"):
        spg.setdefault("stackelberg_sequence", None)
    return data


_TOP = {
    "record_every_iterations": "log_every_iterations",
    "save_every_iterations": "keep_every_iterations",
}
_LOSS = {"critic_coef": "value_coef", "clip_epsilon": "clip", "clip_value": "value_clip"}


def _to_5(data: dict[str, Any]) -> dict[str, Any]:
    """Rename keys to those of version 5."""
    if not has_keys(data, "max_iterations", "agents", "evaluation", *_TOP):
        return data
    for name in ("ppo", "reinforce", "spg"):
        for section in sections_of(data.get(name)):
            rename_keys(section, _LOSS)
    data["evaluate_every_iterations"] = data["evaluation"].pop("every_iterations")
    rename_keys(data, _TOP)
    return data


def _to_6(data: dict[str, Any]) -> dict[str, Any]:
    """Rename keys to those of the other families."""
    if has_keys(data, "scenario", "agents"):
        rename_keys(data.get("evaluation"), {"rollouts": "episodes"}, "rollouts")
        rename_keys(data.get("rl"), {"use_shared_body": "shared_body"}, "use_shared_body")
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
    run_files=("loaded/*.safetensors",),
    directions={"accuracy": "max"},
    migrations={2: _to_3, 4: _to_5, 5: _to_6},
    former_names={
        **_TOP,
        "evaluation.every_iterations": "evaluate_every_iterations",
        "evaluation.rollouts": "evaluation.episodes",
        "rl.use_shared_body": "rl.shared_body",
        "ppo.loss.clip_epsilon": "ppo.loss.clip",
        "ppo.critic_coef": "ppo.value_coef",
        "ppo.clip_value": "ppo.value_clip",
        "spg.critic_coef": "spg.value_coef",
    },
    needs={"torchrl": "ludus[arena]", "tensordict": "ludus[arena]", "pettingzoo": "ludus[arena]"},
    other_names={
        "num_iterations": ("max_iterations",),
        "lr": ("optimizer.learning_rate",),
        "lmbda": ("rl.gae_lambda",),
        "n_epochs": ("rl.num_epochs",),
        "batch_size": ("rl.minibatch_size",),
        "clip_range": ("ppo.loss.clip",),
        "ent_coef": ("ppo.entropy_coef", "reinforce.entropy_coef", "spg.entropy_coef"),
    },
)
