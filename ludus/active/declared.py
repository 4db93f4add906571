"""Registrations of the active learning family."""

from __future__ import annotations

from typing import Any

from ludus.config.families import declare
from ludus.config.migrations import has_keys


def _to_6(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the weights that a round starts from: `start` is the run that training starts from."""
    if not has_keys(data, "start", "starting_checkpoint", "max_rounds"):
        return data
    return {"round_start" if key == "start" else key: value for key, value in data.items()}


declare(
    "ludus.active",
    categories={
        "strategy": "strategies",
        "oracle": "oracles",
        "state_estimation": "drift/estimators",
        "shift": "drift/shifts",
    },
    counters=("round", "labels"),
    lengths={"max_rounds": "round"},
    migrations={5: _to_6},
    needs={"skactiveml": "scikit-activeml"},
    other_names={
        "n_iter": ("max_rounds",),
        "n_query": ("queries",),
        "n_instances": ("queries",),
        "budget": ("stopping.max_labels",),
    },
    run_files=(
        "asked/round-*.json", "ranking.json", "calibration_*.json",
        "queries/round-*.json", "queries/round-*.safetensors",
    ),
)  # fmt: skip
