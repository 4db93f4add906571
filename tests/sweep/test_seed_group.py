"""One config with several seeds: a group of ordinary runs, which goes on where it was interrupted."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from rich.console import Console

from ludus.core.errors import ConfigError
from ludus.session.build import build_trainer
from ludus.store.groups import group_members, groups_in
from ludus.store.lock import RunLock
from ludus.sweep.curve import Point
from ludus.sweep.engine import RunEnd
from ludus.sweep.run import SweptSession
from ludus.sweep.seed_display import SeedDisplay
from ludus.sweep.seed_group import train_seeds
from ludus.sweep.seed_queue import SeedQueue
from ludus.sweep.seed_results import SeedResult
from ludus.testing.differences import differences
from tests.command_line import Ludus, in_process
from tests.sweep.judged import JUDGED, judged, judged_config, judged_file
from tests.sweep.judged_hill import JudgedTrainer

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess

__all__ = ["judged"]
pytestmark = pytest.mark.usefixtures("judged")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


def note_of(place: str) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(Path(place, "run.json").read_text())
    return note


def test_each_seed_is_an_ordinary_run_with_the_bytes_of_one_trained_by_itself(
    tmp_path: Path,
) -> None:
    result = train_seeds(judged_config(), "0-1", show_on="none")
    for seed in (0, 1):
        build_trainer(judged_config(seed=seed)).fit(root="alone", name=f"run{seed}")
        assert result.runs[seed].run_dir == f"runs/climb-seed{seed}"
        assert differences(f"alone/run{seed}", f"runs/climb-seed{seed}") == []
        assert note_of(f"runs/climb-seed{seed}")["group"] == "climb"
    assert "group" not in note_of("alone/run0")
    assert differences("alone/run0", "runs/climb-seed1"), "the seeds differ"
    saved = Path("runs/climb-seed1/config.yaml").read_text()
    assert "name: climb-seed1\n" in saved
    assert "seed: 1\n" in saved


def test_the_result_has_the_score_of_each_seed_and_their_mean() -> None:
    result = train_seeds(judged_config(), [4, 2, 7], show_on="none")
    assert list(result.runs) == [4, 2, 7]
    assert result.metric == "hill/score"
    assert result.is_over
    for seed, score in result.scores.items():
        best = json.loads(Path(f"runs/climb-seed{seed}/events.jsonl").read_text().splitlines()[-1])
        assert score == best["best"]["score"]
    assert result.score is not None
    assert result.score.mean == pytest.approx(statistics.fmean(result.scores.values()))
    assert result.score.count == 3


@pytest.mark.usefixtures("warm_children")
def test_several_runs_at_once_end_as_those_one_after_the_other() -> None:
    settings = {**judged_config().settings.model_dump(), "threads": 1}
    one = train_seeds(judged_config(settings=settings), "0-2", root="one", show_on="none")
    two = train_seeds(judged_config(), "0-2", jobs=2, root="two", show_on="none")
    assert two.scores == one.scores
    for seed in range(3):
        assert differences(f"one/climb-seed{seed}", f"two/climb-seed{seed}") == []
        assert "threads: 1\n" in Path(f"two/climb-seed{seed}/config.yaml").read_text()
        assert "display: none" in Path(f"two/climb-seed{seed}/config.yaml").read_text()


def test_a_run_keeps_the_display_and_the_threads_of_its_config_and_shows_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {**judged_config().settings.model_dump(), "display": "plain", "threads": 2}
    train_seeds(judged_config(settings=settings), [0], jobs=4, show_on="none")
    saved = Path("runs/climb-seed0/config.yaml").read_text()
    assert "display: plain" in saved
    assert capsys.readouterr() == ("", "")
    assert "threads: 2\n" in saved


@pytest.mark.usefixtures("warm_children")
def test_a_run_that_has_begun_keeps_its_number_of_threads_whatever_runs_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {**judged_config().settings.model_dump(), "threads": 2}
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        assert not train_seeds(judged_config(settings=settings), "0-1", show_on="none").is_over
    result = train_seeds(judged_config(), "0-1", root="runs", jobs=2, show_on="none")
    assert [run.status for run in result.runs.values()] == ["finished"] * 2
    assert "threads: 2\n" in Path("runs/climb-seed0/config.yaml").read_text()
    assert "threads: 1\n" in Path("runs/climb-seed1/config.yaml").read_text()


def interrupt_at(monkeypatch: pytest.MonkeyPatch, boundary: int) -> None:
    """Send this process a Ctrl-C at a boundary, counted over all runs."""
    look, seen = SweptSession._look, [0]

    def interrupted(self: SweptSession, run: Any) -> None:
        seen[0] += 1
        if seen[0] == boundary:
            os.kill(os.getpid(), signal.SIGINT)
        look(self, run)

    monkeypatch.setattr(SweptSession, "_look", interrupted)


def test_a_seed_that_fails_is_reported_the_others_go_on_and_the_command_fails(call: Ludus) -> None:
    file = judged_file(sour_seed=1, sour_mood="raises")
    done = call("train", file, "--seeds", "0-2", "--plugin", JUDGED)
    assert done.code == 1
    assert done.err.strip() == (
        "ludus: 1 of 3 seeds failed: seed 1: ValueError: the rope broke;"
        f" `ludus train climb.yaml --seeds 0-2 --plugin {JUDGED}` tries again"
    )
    lines = done.out.splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [
        ["seed", "0:", "finished"], ["seed", "1:", "failed"], ["seed", "2:", "finished"],
    ]  # fmt: skip
    assert "mean hill/score" in lines[-1]
    assert "2 seeds" in lines[-1]
    found = call("train", file, "--seeds", "0-2", "--plugin", JUDGED, "--json")
    assert found.code == 1
    rows = json.loads(found.out)["runs"]
    assert [row["status"] for row in rows] == ["finished", "failed", "finished"]
    assert rows[1]["best_score"] is None


def test_a_seed_that_failed_is_tried_again() -> None:
    config = judged_config(sour_seed=0, sour_mood="raises")
    result = train_seeds(config, [0], show_on="none")
    assert [run.reason for run in result.failed] == ["ValueError: the rope broke"]
    assert result.score is None
    JudgedTrainer.climb, climb = JudgedTrainer.__mro__[1].climb, JudgedTrainer.climb  # type: ignore
    try:
        assert train_seeds(config, [0], show_on="none").runs[0].status == "finished"
    finally:
        JudgedTrainer.climb = climb  # type: ignore[method-assign]


@pytest.mark.usefixtures("warm_children")
def test_a_worker_that_dies_costs_its_seed_alone() -> None:
    config = judged_config(sour_seed=1, sour_mood="dies")
    result = train_seeds(config, "0-2", jobs=2, show_on="none")
    assert [run.status for run in result.runs.values()] == ["finished", "failed", "finished"]
    assert "was ended by SIGKILL" in str(result.runs[1].reason)


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.usefixtures("warm_children")
def test_a_ctrl_c_saves_all_and_the_same_command_ends_with_the_same_bytes(
    jobs: str, call: Ludus, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = judged_file(max_steps=30, settings=single_threaded())
    words = ["train", file, "--seeds", "0-2", "--jobs", jobs, "--plugin", JUDGED]
    assert call(*words, "--root", "whole").code == 0
    with monkeypatch.context() as patch:
        interrupt_at(patch, 35)
        logged, sent = SeedQueue.logged, []

        def interrupted(self: SeedQueue, task: Any, point: Point) -> None:
            logged(self, task, point)
            if jobs == "2" and not sent and point.counters.get("opt_steps") == 5:
                sent.append(task.seed)
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(SeedQueue, "logged", interrupted)
        done = call(*words)
    assert done.code == 0
    way = f"ludus train climb.yaml --seeds 0-2 --jobs {jobs} --plugin {JUDGED}"
    assert done.out.splitlines()[-1] == f"interrupted; to go on: {way}"
    rows = call("runs", "--json").json["runs"]
    assert {row["status"] for row in rows} <= {"finished", "interrupted"}
    assert "interrupted" in {row["status"] for row in rows}
    # With two at once, the second may not have begun when the first is interrupted.
    assert {row["seed"] for row in rows} <= {0, 1}, "no other run is begun"
    done = call(*words, "--json")
    assert [row["status"] for row in done.json["runs"]] == ["finished"] * 3
    for seed in range(3):
        assert differences(f"whole/climb-seed{seed}", f"runs/climb-seed{seed}") == []


def single_threaded() -> dict[str, Any]:
    return {**judged_config().settings.model_dump(), "threads": 1}


def unlike_single_runs(config: Any) -> list[str]:
    """Return what differs between the runs of the group and runs trained by themselves."""
    found = []
    for seed in range(3):
        build_trainer(config.replace(seed=seed)).fit(root="alone", name=f"run{seed}")
        found += differences(f"alone/run{seed}", f"runs/climb-seed{seed}")
    return found


def test_killed_again_and_again_it_ends_with_the_bytes_of_single_runs(
    warm: WarmProcess, tmp_path: Path
) -> None:
    config = judged_config(max_steps=8, settings=single_threaded())
    job: dict[str, Any] = {"root": str(tmp_path / "runs"), "data": config.model_dump(mode="json")}
    for at, count in [("boundary", 3), ("saved", 1), ("boundary", 11), ("boundary", 2)]:
        code, output = warm.run("seeds", **job, at=at, count=count)
        assert code == -9, output
    code, output = warm.run("seeds", **job, at=None, count=0)
    assert code == 0, output
    assert unlike_single_runs(config) == []


def test_workers_end_with_the_process_that_is_killed_and_another_goes_on(
    warm: WarmProcess, tmp_path: Path
) -> None:
    config = judged_config(max_steps=50, settings=single_threaded())
    job: dict[str, Any] = {"root": str(tmp_path / "runs"), "data": config.model_dump(mode="json")}
    pid = warm.start("seeds", **job, at=None, count=0, jobs=2)
    log = tmp_path / "runs/climb-seed1/metrics.jsonl"
    while not (log.exists() and log.read_bytes().count(b"\n") >= 2):
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE, warm.output(pid)
    workers = psutil.Process(pid).children(recursive=True)
    assert len(workers) == 2
    os.kill(pid, signal.SIGKILL)
    warm.wait(pid)
    psutil.wait_procs(workers, timeout=60)
    assert not [worker for worker in workers if worker.is_running()]
    statuses = [run.status for run in train_seeds(config, "0-2", show_on="none").runs.values()]
    assert statuses == ["finished"] * 3
    assert unlike_single_runs(config) == []


def test_what_has_ended_is_not_repeated_and_more_seeds_join(call: Ludus) -> None:
    file = judged_file()
    words = ["train", file, "--plugin", JUDGED, "--seeds"]
    call(*words, "0-1")
    before = Path("runs/climb-seed0/events.jsonl").read_bytes()
    done = call(*words, "0-2")
    assert done.out.startswith("seed 2: finished")
    assert Path("runs/climb-seed0/events.jsonl").read_bytes() == before
    assert "3 seeds" in done.out
    assert group_members("runs", "climb") == [f"runs/climb-seed{seed}" for seed in range(3)]


def test_a_longer_group_goes_on_and_another_config_is_refused_before_anything_runs(
    call: Ludus,
) -> None:
    file = judged_file()
    words = ["train", file, "--plugin", JUDGED, "--seeds", "1"]
    call(*words)
    assert "opt_steps 9" in call(*words, "max_steps=9").out
    words[-1] = "0-1"
    told = call(*words, "noise=0.5", "max_steps=9").refusal()
    assert told == (
        "runs/climb-seed1 was started with noise 1.0 (now 0.5); put the old values back, or choose"
        " another name"
    )
    assert not Path("runs/climb-seed0").exists()


def test_a_seed_that_trains_elsewhere_is_left_alone_and_the_others_train() -> None:
    train_seeds(judged_config(), [1], show_on="none")
    with RunLock(Path("runs/climb-seed1")):
        result = train_seeds(judged_config(max_steps=9), "0-1", show_on="none")
    assert [run.status for run in result.runs.values()] == ["finished", "failed"]
    assert "runs/climb-seed1 is in use" in str(result.runs[1].reason)


def test_a_run_by_itself_does_not_become_one_of_a_group(call: Ludus) -> None:
    file = judged_file()
    call("train", file, "--plugin", JUDGED, "--run", "climb-seed1")
    told = call("train", file, "--plugin", JUDGED, "--seeds", "0-1").refusal()
    assert told.startswith("runs/climb-seed1 is a run by itself, and not of the group climb;")
    assert call("train", file, "--plugin", JUDGED, "--seeds", "0-1", "--run", "b").code == 0
    assert list(groups_in("runs")) == ["b"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds", "4-0"], "--seeds runs backwards from 4 to 0; write 0-4"),
        (["--seeds", "0,2-1"], "--seeds runs backwards from 2 to 1; write 1-2"),
        (["--seeds", "1,1"], "--seeds names 1 twice"),
        (["--seeds", "x"], "--seeds is 'x'; give a range such as 0-4"),
        (["--seeds", "0-99999"], "--seeds has 100000 seeds; 10000 are the most"),
        (["--seeds", str(2**63)], "a seed is a whole number from 0 to 2**63 - 1"),
        (["--jobs", "2"], "--jobs is for several runs; add --seeds"),
        (["--seeds", "0-1", "--seed", "3"], "given twice, by --seeds 0-1 and by --seed"),
        (["--seeds", "0-1", "seed=3"], "given twice, by --seeds 0-1 and by seed=..."),
        (["--seeds", "0-1", "--run", "../x"], "'../x-seed0' cannot name a run"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    words: list[str], told: str, call: Ludus
) -> None:
    assert told in call("train", judged_file(), "--plugin", JUDGED, *words).refusal()
    assert not Path("runs").exists()


def test_mistakes_of_a_script_are_sentences() -> None:
    with pytest.raises(ConfigError, match="'seeds' runs backwards from 3 to 1"):
        train_seeds(judged_config(), "3-1")
    with pytest.raises(ConfigError, match=r"'seeds' names 1\.5; a seed is a whole number"):
        train_seeds(judged_config(), [1.5])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"'seeds' is 2; give \[2\] for that seed, or range\(2\)"):
        train_seeds(judged_config(), 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="0 runs cannot train at once"):
        train_seeds(judged_config(), [1], jobs=0)
    with pytest.raises(ConfigError, match="not a int"):
        train_seeds(3, [1])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="make_trainer_fn stays in this process"):
        train_seeds(judged_config(), "0-1", jobs=2, make_trainer_fn=build_trainer)


def test_a_script_makes_the_trainer_of_each_run() -> None:
    made = []

    def make(config: Any) -> Any:
        made.append(config.seed)
        return build_trainer(config)

    train_seeds(judged_config(), "3-4", make_trainer_fn=make, show_on="none")
    assert made == [3, 4]


def test_the_live_table_shows_how_far_each_seed_is() -> None:
    console = Console(width=120, force_terminal=True, record=True, file=sys.stderr)
    display = SeedDisplay("climb", console, is_silent=False)
    best = {"metric": "eval/return", "score": 480.0}
    runs = {
        0: SeedResult(0, "runs/a", "finished", None, {"epoch": 9}, best),
        1: SeedResult(1, "runs/b", "waiting"),
        2: SeedResult(2, "runs/c", "failed", "ValueError: \x1b[31mno"),
    }
    display.open(runs)
    display.began(1)
    display.logged(1, Point({"epoch": 4}, 12.5))
    console.print(display.render())
    display.close()
    shown = console.export_text()
    assert "climb: 2 of 3 seeds, 0:0" in shown
    assert "eval/return 480" in shown
    assert "running" in shown
    assert "epoch 4" in shown
    assert "(12.5)" in shown
    assert "ValueError: no" in shown


def test_an_end_without_a_directory_still_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    end = RunEnd("failed", "out of memory", {})
    monkeypatch.setattr("ludus.sweep.engines.inline.execute", lambda *args, **more: end)
    (run,) = train_seeds(judged_config(), [0], show_on="none").failed
    assert (run.reason, run.counters, run.score) == ("out of memory", {}, None)
