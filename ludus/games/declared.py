"""Registrations of device games: their kinds, config migrations and findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.config.families import Finding, declare
from ludus.config.migrations import has_keys, rename_keys
from ludus.config.registry import find


def _to_3(data: dict[str, Any]) -> dict[str, Any]:
    """Add the key of version 3, with the value that version 2 behaved by."""
    if has_keys(game := data.get("game"), "max_num_points", "scale_observation"):
        game.setdefault("starts", None)
    return data


_ROLE = {
    "steps_before_rollout": "collect_every_rounds",
    "steps_before_update_target": "sync_target_every_rounds",
}
_TOP = {"record_every_rounds": "log_every_rounds", "save_every_rounds": "keep_every_rounds"}
_EVALUATION = {"games": "episodes", "max_steps": "max_turns"}


def _to_5(data: dict[str, Any]) -> dict[str, Any]:
    """Rename keys to those of version 5, and give PPO's minibatches by size instead of by number."""
    if not has_keys(data, "game", "max_rounds", "evaluation", *_TOP):
        return data
    for role in ("host", "agent"):
        rename_keys(data.get(role), _ROLE, *_ROLE)
    rename_keys(data.get("past_players"), {"every_rounds": "keep_every_rounds"}, "every_rounds")
    data["evaluate_every_rounds"] = data["evaluation"].pop("every_rounds")
    if has_keys(data, "passes", "minibatches", "rollout_steps", "num_games"):
        roles = getattr(find("game", data["game"]["kind"]), "roles", ("player",))
        rows = data["num_games"] * data["rollout_steps"] * len(roles)
        data["minibatches"] = rows // data["minibatches"]
    rename_keys(data, {**_TOP, "passes": "num_epochs", "minibatches": "minibatch_size"})
    return data


def _to_6(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the keys of an evaluation as in the other families."""
    if has_keys(data, "game", "max_rounds"):
        rename_keys(data.get("evaluation"), _EVALUATION, "games")
    return data


def _findings() -> Iterator[Finding]:
    """Yield how games and rounds would be executed here, and why not by a faster path."""
    import torch

    from ludus.games.kernels.triton_path import why_no_kernels

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reason = why_no_kernels(device)
    if reason is None:
        yield "ok", "games", f"stepped by Triton kernels on {device.type}"
        yield "ok", "fused_ppo", "games of numbers for one: whole rounds by Triton kernels"
    else:
        yield "note", "games", f"stepped by plain PyTorch: {reason}"
        yield "note", "fused_ppo", f"its rounds are made in plain PyTorch: {reason}"
    if device.type == "cuda":
        yield "ok", "fused_dqn", "its rounds are captured as CUDA graphs"
    else:
        yield "note", "fused_dqn", "its rounds are called: CUDA graphs need a CUDA device"


declare(
    "ludus.games",
    categories={"game": "rules", "player": "players"},
    counters=("round", "game_steps"),
    lengths={"max_rounds": "round"},
    directions={"rho": "max", "agent_rho": "min"},
    findings=_findings,
    migrations={2: _to_3, 4: _to_5, 5: _to_6},
    former_names={
        **_TOP,
        **{f"host.{old}": f"host.{new}" for old, new in _ROLE.items()},
        **{f"agent.{old}": f"agent.{new}" for old, new in _ROLE.items()},
        "evaluation.every_rounds": "evaluate_every_rounds",
        **{f"evaluation.{old}": f"evaluation.{new}" for old, new in _EVALUATION.items()},
        "past_players.every_rounds": "past_players.keep_every_rounds",
    },
)
