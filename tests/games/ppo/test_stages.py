"""Stages of several rounds end at multiples, so that what follows a round is due where it would be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.runtime import InMemoryRuntime
from ludus.games.trainers.fused_ppo import PPOTrainer
from tests.games.ppo.small import small_ppo

STAGES: dict[str, Any] = {
    "name": "run", "fused": True, "rounds_a_stage": 4, "num_epochs": 1, "minibatches": 1,
    "log_every_rounds": 4, "keep_every_rounds": 4, "evaluate_every_rounds": 8,
}  # fmt: skip


def fitted(root: Path, max_rounds: int, **options: Any) -> tuple[list[int], list[str]]:
    """Return after which rounds was evaluated, and which models were kept."""
    PPOTrainer(small_ppo(**STAGES, max_rounds=max_rounds)).fit(root=str(root), **options)
    lines = (root / "run" / "metrics.jsonl").read_text().splitlines()
    evaluated = [row["round"] for row in map(json.loads, lines) if "eval/return_mean" in row]
    kept = sorted(path.name for path in (root / "run" / "models").iterdir())
    return evaluated, kept


@pytest.mark.covers("001-D10")
def test_a_run_that_is_made_longer_is_evaluated_where_an_unbroken_one_is(tmp_path: Path) -> None:
    whole, kept = fitted(tmp_path / "whole", 22)
    assert whole == [8, 16, 22]
    assert fitted(tmp_path / "longer", 6)[0] == [6]
    longer = fitted(tmp_path / "longer", 22, resume=True)
    # After its first length it was evaluated too, as every run is after its last round.
    assert longer == ([6, *whole], kept)


def test_rows_wait_until_the_last_update_and_no_longer() -> None:
    trainer: Any = ludus.build_trainer(small_ppo())
    held: list[bool] = []

    class Looking:
        def after_train_step(self) -> None:
            held.append(trainer.pending_rollout.state_dict()["rows"] is not None)

    trainer.add(Looking())
    trainer.fit(runtime=InMemoryRuntime)
    assert held == [True, True, True, True, True, False] * 6
    assert trainer.pending_rollout.state_dict() == {"rollout": None, "rows": None}
