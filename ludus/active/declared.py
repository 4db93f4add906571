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
    tables={
        "strategies/by_score": (
            "uncertainty", "margin", "entropy", "mc_dropout", "bald", "committee_vote_entropy",
            "committee_kl", "expected_gradient_length", "density_weighted",
        ),
        "strategies/by_features": ("uniform", "core_set", "badge", "typiclust"),
        "oracles/automatic": ("known", "function"),
        "drift/estimators": ("ece", "mce", "entropy", "mmd", "ks"),
        "drift/shifts": ("static", "random_uniform", "linear_shift", "hard_switch"),
        "programs/stream": ("edge", "datacenter", "standalone"),
        "report/rounds": ("balance", "calibration", "queried", "ranking"),
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
)  # fmt: skip
