"""A budget is never exceeded; what it stops goes on once it is raised, and ends as if it had been enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import ConfigError, LudusError
from ludus.testing.trainers import Killed
from ludus.text.client.ledger import BudgetSpent
from tests.text.trainers.faulty_tables import asked, faulty, jobs
from tests.text.trainers.runs import outcome, resume, rows, tiny_ei, train, trained

PRICE = {"input": 1e6, "cached_input": 1e6, "output": 1e6, "training": 1e6}
"""A token is one of money."""
EXACT: dict[str, Any] = {
    "expert_iteration.selection.reward_threshold": 0.0,
    "settings.checkpoint.every_stages": 1,
    "client.record_answers": "always",
    "budget.prices": {"tiny*": PRICE},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run without a cap."""
    return train(tmp_path_factory.mktemp("whole"), **EXACT)


def spent(run_dir: Path) -> float:
    """Return the money that answers and jobs have cost, from the journals."""
    found = 0.0
    for path in sorted((run_dir / "journals").glob("*.jsonl")):
        for record in journal(run_dir, path.stem).values():
            if "spent" in record and "by" in record:
                # The sums are those of spending.Spent: its cost, and that of answers that were lost.
                found += record["spent"][5] + record["spent"][8]
            elif record.get("state") in ("wanted", "created"):
                found += record["worst"][1]
    return found


def journal(run_dir: Path, name: str) -> dict[str, Any]:
    """Return the last record of each key of a journal."""
    return {row["key"]: row["record"] for row in rows(run_dir, f"journals/{name}.jsonl")}


@pytest.mark.parametrize("key", ["max_cost", "max_tokens"])
def test_a_budget_of_zero_asks_for_nothing(key: str, tmp_path: Path) -> None:
    with pytest.raises(BudgetSpent) as caught:
        trained(tiny_ei(**EXACT, **{f"budget.{key}": 0}), tmp_path)
    assert str(caught.value).startswith(f"'budget.{key}' is 0: 0 is spent, and the next request of")
    assert str(caught.value).endswith("raise it and resume")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run/server/asked.jsonl").exists()


def test_a_cap_on_money_needs_a_price_of_every_model_before_work_begins(tmp_path: Path) -> None:
    changes = {**EXACT, "budget.prices": {}, "budget.max_cost": 5.0}
    with pytest.raises(ConfigError, match=r"'budget.prices' has no prices of tiny; add them"):
        trained(tiny_ei(**changes), tmp_path)
    assert not (tmp_path / "run/server/asked.jsonl").exists()


@pytest.mark.parametrize("share", [0.02, 0.15, 0.4, 0.8])
def test_a_small_cap_stops_in_time_and_a_raised_one_goes_on(
    share: float, whole: Path, tmp_path: Path
) -> None:
    cap = share * spent(whole)
    config = tiny_ei(**EXACT, **{"budget.max_cost": cap})
    with pytest.raises(BudgetSpent, match=r"'budget.max_cost' is .* may take up to .* more; raise"):
        trained(config, tmp_path)
    run_dir = tmp_path / "run"
    assert spent(run_dir) <= cap
    # With the same cap it stops again, and spends no more.
    before = spent(run_dir), asked(run_dir)
    with pytest.raises(LudusError, match=r"budget.max_cost"):
        resume(run_dir)
    after = spent(run_dir), asked(run_dir)
    assert after == before
    assert resume(run_dir, "budget.max_cost=null").status == "finished"
    assert outcome(run_dir) == outcome(whole)
    assert len(asked(run_dir)) == len(asked(whole))


def test_a_budget_for_the_samples_alone_stops_before_the_first_job(
    whole: Path, tmp_path: Path
) -> None:
    free = {"tiny*": {**PRICE, "input": 0.0, "cached_input": 0.0, "output": 0.0}}
    config = tiny_ei(**{**EXACT, "budget.prices": free, "budget.max_cost": 10.0})
    with pytest.raises(BudgetSpent, match=r"a job of up to \d+ training tokens may take up to"):
        trained(config, tmp_path)
    assert jobs(tmp_path / "run") == {}
    assert spent(tmp_path / "run") == 0.0
    resume(tmp_path / "run", "budget.max_cost=null")
    assert outcome(tmp_path / "run") == outcome(whole)


def test_a_job_whose_creation_was_not_answered_is_reserved_once(
    whole: Path, tmp_path: Path
) -> None:
    """The cap has room for each job once; one that may exist is paid for already."""
    free = {"tiny*": {**PRICE, "input": 0.0, "cached_input": 0.0, "output": 0.0}}
    config = {**EXACT, "budget.prices": free, "agents.prover.frozen": True}
    plain = train(tmp_path / "plain", **config)
    (record,) = journal(plain, "jobs").values()
    cap = record["worst"][1]
    changes = {**config, "budget.max_cost": cap, "provider": faulty(stop_at_job=1)}
    with pytest.raises(Killed):
        trained(tiny_ei(**changes), tmp_path)
    resume(tmp_path / "run", "provider.stop_at_job=null")
    assert outcome(tmp_path / "run") == outcome(plain)
