"""One run of each kind that the benchmark text_learning compares; each returns its curve and its score."""

import json
from pathlib import Path
from typing import Any

import ludus

QUIET = {"settings.display": "none", "settings.loggers": []}
REWARDS = {
    "force_guess": None,
    "verifier_reward": 1.0,
    "verifier_incorrect_reward": 0.0,
    "verifier_terminated_reward": 0.0,
}
Outcome = dict[str, Any]


def alone(seed: int) -> Outcome:
    """Decide alone, from all letters, by expert iteration."""
    return _learned(ludus.example("pure_text_ei-solo", seed=seed, **QUIET))


def with_prover(seed: int) -> Outcome:
    """Decide from one letter and a message of a prover that shares the reward."""
    return _learned(ludus.example("pure_text_ei", seed=seed, **QUIET))


def with_adversary(seed: int) -> Outcome:
    """Decide from three letters and a message of a prover that gains by being believed."""
    return _learned(ludus.example("pure_text_ei-adversarial", seed=seed, **QUIET))


def malt(seed: int) -> Outcome:
    """Decide from one letter and a message, by MALT."""
    return _learned(ludus.example("pure_text_malt", seed=seed, **QUIET))


def policy_gradients(seed: int) -> Outcome:
    """Decide alone, from all letters, by policy gradients through Tinker's API."""
    return _learned(ludus.example("pure_text_pg", seed=seed, **QUIET))


def _learned(config: Any) -> Outcome:
    result = ludus.build_trainer(config).fit()
    rows = [json.loads(line) for line in (Path(result.run_dir) / "metrics.jsonl").open()]
    curve = [
        [row.get("iteration", 0) + 1, row["train/accuracy"]]
        for row in rows
        if "train/accuracy" in row
    ]
    tested = [row["final_test/accuracy"] for row in rows if "final_test/accuracy" in row]
    return {"curve": curve, "score": curve[-1][1], "tested": tested[-1] if tested else None}
