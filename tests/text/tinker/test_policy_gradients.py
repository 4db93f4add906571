"""Policy gradients through the real API: a run that is killed goes on with the weights it had saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.testing.trainers import Killed

SMALL: dict[str, Any] = {
    "scenario.num_letters": 5,
    "scenario.num_as": [2, 3],
    "scenario.num_seen": 5,
    "max_iterations": 3,
    "rl.rollouts_per_iteration": 16,
    "rl.rollouts_per_question": 4,
    "policy_gradient.minibatch_size": 8,
    "policy_gradient.num_epochs": 1,
    "pretraining.num_episodes": 1100,
    "pretraining.batch_size": 4,
    "text_rl.test_scheme": "none",
    "rl.num_test_iterations": 1,
    "settings.loggers": [],
    "settings.display": "none",
    "settings.checkpoint.every_stages": 1,
}


class Stops:
    """A callback that kills the run after a stage of an iteration."""

    def __init__(self, name: str, iteration: int) -> None:
        setattr(self, f"after_{name}", self._stop)
        self._iteration = iteration

    def _stop(self, run: Any) -> None:
        if run.counters["iteration"] == self._iteration:
            raise Killed


def trainer(*callbacks: object) -> Any:
    found = ludus.build_trainer(ludus.example("pure_text_pg", **SMALL))
    for callback in callbacks:
        found.add(callback, name="stops")
    return found


def outcome(root: Path) -> tuple[str, str]:
    """Return the metrics and the weights that were sampled from at the end."""
    metrics = (root / "run" / "metrics.jsonl").read_text()
    (saved,) = sorted((root / "run/server/tinker").rglob("*step-000002*/**/model.safetensors"))[:1]
    return metrics, saved.read_bytes().hex()


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop", [("pretrain", 0), ("await_fine_tune_jobs", 0), ("sample_rollouts", 2)]
)
def test_a_run_killed_after_its_weights_have_switched_ends_the_same(
    stop: tuple[str, int], tmp_path: Path
) -> None:
    """550 numbered requests of one stage are more than the server keeps outcomes of."""
    trainer().fit(root=str(tmp_path / "whole"), name="run")
    with pytest.raises(Killed):
        trainer(Stops(*stop)).fit(root=str(tmp_path / "killed"), name="run")
    result = trainer().fit(root=str(tmp_path / "killed"), name="run", resume="approximate")
    assert result.status == "finished"
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    rows = [json.loads(line) for line in outcome(tmp_path / "whole")[0].splitlines()]
    assert any("final_test/accuracy" in row for row in rows)
