"""A run of text that dies inside a stage ends as one that never did, and asks for little twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ludus.testing.trainers import Killed
from tests.faults.warm import WarmProcess
from tests.text.small_run import small_malt
from tests.text.trainers.faulty_tables import asked, faulty, jobs
from tests.text.trainers.runs import TINY, outcome, resume, tiny_ei, train, trained

EXACT: dict[str, Any] = {
    "expert_iteration.selection.reward_threshold": 0.0,
    "settings.checkpoint.every_stages": 1,
}
"""Requests of every stage, and a checkpoint after each."""
RECORDED = {**EXACT, "client.record_answers": "always", "client.max_concurrency": 2}
GO_ON = "provider.stop_at_request=null"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that nothing stopped."""
    return train(tmp_path_factory.mktemp("whole"), **RECORDED)


def stopped(root: Path, at: int, **changes: Any) -> Path:
    """Begin a run that is killed by its request of this number."""
    with pytest.raises(Killed):
        trained(tiny_ei(**changes, provider=faulty(stop_at_request=at)), root)
    return root / "run"


def places(count: int, whole: Path) -> list[int]:
    """Return the numbers of requests spread over a run, the first and the last among them."""
    total = len(asked(whole))
    return sorted({1 + index * (total - 1) // (count - 1) for index in range(count)})


@pytest.mark.covers("002-M9", "002-D3")
def test_a_run_killed_inside_any_stage_ends_with_the_same_bytes(
    whole: Path, tmp_path: Path
) -> None:
    for at in places(7, whole):
        run_dir = stopped(tmp_path / f"{at}", at, **RECORDED)
        assert resume(run_dir, GO_ON).status == "finished"
        assert outcome(run_dir) == outcome(whole), f"killed by request {at}"
        # What was answered before the kill is not asked again.
        assert Counter(asked(run_dir)) == Counter(asked(whole))


def test_without_recorded_answers_each_is_asked_for_once_more_at_most(
    whole: Path, tmp_path: Path
) -> None:
    once = Counter(asked(whole))
    for at in places(4, whole):
        run_dir = stopped(tmp_path / f"{at}", at, **EXACT)
        assert resume(run_dir, GO_ON).status == "finished"
        found = Counter(asked(run_dir))
        assert {*found} == {*once}
        assert all(found[digest] <= 2 * once[digest] for digest in once)
        one, other = (outcome(place) for place in (run_dir, whole))
        assert one == other


def test_a_run_killed_again_and_again_asks_for_no_answer_twice(whole: Path, tmp_path: Path) -> None:
    """Each life lasts for three requests."""
    run_dir = stopped(tmp_path, 4, **RECORDED)
    for _ in range(100):
        try:
            resume(run_dir)
        except Killed:
            continue
        break
    assert Counter(asked(run_dir)) == Counter(asked(whole))
    assert outcome(run_dir) == outcome(whole)


@pytest.mark.covers("002-S4", "002-M9")
def test_a_pause_inside_a_stage_keeps_the_answers_and_goes_on_there(
    whole: Path, tmp_path: Path
) -> None:
    at = len(asked(whole)) // 2
    config = tiny_ei(**RECORDED, provider=faulty(stop_at_request=at, stops_by="pause"))
    assert trained(config, tmp_path).status == "interrupted"
    assert resume(tmp_path / "run", GO_ON).status == "finished"
    assert outcome(tmp_path / "run") == outcome(whole)
    assert Counter(asked(tmp_path / "run")) == Counter(asked(whole))


def test_malt_killed_inside_a_tree_ends_with_the_same_bytes(tmp_path: Path) -> None:
    own = {**TINY, "settings.checkpoint.every_stages": 1, "client.record_answers": "always"}
    own["rl.rollouts_per_iteration"] = 32
    trained(small_malt(**own), tmp_path / "whole")
    whole, total = tmp_path / "whole/run", len(asked(tmp_path / "whole/run"))
    for at in (2, total // 3, total // 2):
        config = small_malt(**{**own, "provider": faulty(stop_at_request=at)})
        with pytest.raises(Killed):
            trained(config, tmp_path / f"{at}")
        run_dir = tmp_path / f"{at}/run"
        resume(run_dir, GO_ON)
        assert outcome(run_dir) == outcome(whole)
        assert Counter(asked(run_dir)) == Counter(asked(whole))


@pytest.mark.covers("002-D3")
@pytest.mark.parametrize(
    "stop",
    [{"stop_at_request": 3}, {"stop_at_request": 40}, {"stop_at_job": 1}, {"stop_at_job": 2}],
)
def test_a_process_that_ends_inside_a_stage_leaves_all_that_was_answered(
    stop: dict[str, int], whole: Path, warm: WarmProcess, tmp_path: Path
) -> None:
    """The process ends at once, as by a signal: nothing is flushed."""
    changes = {**RECORDED, "provider": faulty(**stop, stops_by="exit")}
    code, output = warm.run("text_run", root=str(tmp_path), changes=changes)
    assert code == 9, output
    resume(tmp_path / "run", f"provider.{next(iter(stop))}=null")
    assert outcome(tmp_path / "run") == outcome(whole)
    assert len(jobs(tmp_path / "run")) == len(jobs(whole))
    assert Counter(asked(tmp_path / "run")) == Counter(asked(whole))
