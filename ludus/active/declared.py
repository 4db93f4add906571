"""Registrations of the active learning family."""

from ludus.config.families import declare

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
