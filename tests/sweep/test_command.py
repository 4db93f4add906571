"""`ludus sweep` as a user sees it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from ludus.config import strict_yaml
from ludus.judge.confidence import MeanInterval
from ludus.sweep.display import SweepDisplay
from ludus.sweep.trials import SweepTrial
from tests.command_line import Ludus, in_process
from tests.sweep.small import ASHA, HILL, LOCAL, SAMPLERS, among, sweep_data

PLUGIN = ["--plugin", HILL]


@pytest.fixture
def ludus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


def write(folder: Path, **changed: object) -> str:
    path = folder / "climb.yaml"
    path.write_text(strict_yaml.dump(sweep_data(folder, **changed)))
    return path.name


def test_a_line_for_each_trial_then_the_best_and_what_to_do_next(
    ludus: Ludus, tmp_path: Path
) -> None:
    file = write(
        tmp_path, seeds="0-1", space={"x": among(*[i / 10 for i in range(9)]), "y": among(0.6, 0.9)}
    )
    done = ludus("sweep", file, "budget.max_trials=3", *PLUGIN)
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["trial 0", "trial 1", "trial 2"]
    assert all(len(line) < 160 for line in lines)
    assert "\x1b" not in done.out
    assert lines[3] == "finished: 3 trials (3 complete)"
    assert lines[4].startswith("best hill/score ")
    assert lines[-2] == "next: ludus train sweeps/climb/best.yaml"
    assert lines[-1].startswith("or with new seeds: ludus sweep climb.yaml budget.max_trials=3")
    assert ludus("train", "sweeps/climb/best.yaml", *PLUGIN, "--json").json["status"] == "finished"


def test_an_export_that_cannot_be_is_refused_before_the_search(
    ludus: Ludus, tmp_path: Path
) -> None:
    file = write(tmp_path)
    told = ludus("sweep", file, "--export-optuna", file, *PLUGIN).refusal()
    assert "was not written by ludus as a study of Optuna" in told
    told = ludus("sweep", file, "--best", "--export-optuna", "s.db", *PLUGIN).refusal()
    assert "leave out --export-optuna, or --best" in told
    assert not (tmp_path / "sweeps").exists()


def test_one_json_object_and_nothing_else(ludus: Ludus, tmp_path: Path) -> None:
    file = write(tmp_path, budget__max_trials=2)
    found = ludus("sweep", file, "--json", *PLUGIN).json
    assert (found["status"], found["metric"], found["mode"]) == ("finished", "hill/score", "max")
    assert [row["trial"] for row in found["trials"]] == [0, 1]
    assert found["best"]["score"] == max(row["score"] for row in found["trials"])


def test_the_winner_is_trained_with_more_seeds(ludus: Ludus, tmp_path: Path) -> None:
    file = write(tmp_path, budget__max_trials=2)
    assert "holds no sweep yet; `ludus sweep" in ludus("sweep", file, "--best", *PLUGIN).refusal()
    ludus("sweep", file, *PLUGIN)
    found = ludus("sweep", file, "--best", "--num-seeds", "2", "--json", *PLUGIN).json
    assert [run["seed"] for run in found["runs"]] == [1, 2]
    told = ludus("sweep", file, "--best", "--seeds", "5-7", *PLUGIN).out
    assert "with 3 new seeds: " in told
    found = ludus("sweep", file, "--best", "--seeds", "9", "--json", *PLUGIN).json
    assert [run["seed"] for run in found["runs"]] == [9]
    both = ("--seeds", "9", "--num-seeds", "2")
    assert "leave one out" in ludus("sweep", file, "--best", *both, *PLUGIN).refusal()
    assert "runs backwards" in ludus("sweep", file, "--best", "--seeds", "7-5", *PLUGIN).refusal()
    assert "--seeds is for --best" in ludus("sweep", file, "--seeds", "3", *PLUGIN).refusal()


def test_the_trials_are_exported_for_optunas_dashboard(ludus: Ludus, tmp_path: Path) -> None:
    file = write(tmp_path, budget__max_trials=1)
    done = ludus("sweep", file, "--export-optuna", "study.db", *PLUGIN)
    assert "optuna-dashboard sqlite:///study.db" in done.err
    assert (tmp_path / "study.db").read_bytes().startswith(b"SQLite format 3")


def test_the_runs_of_a_sweep_are_listed_resumed_and_reported_as_any(
    ludus: Ludus, tmp_path: Path
) -> None:
    space = {"x": among(0.3, 0.9)}
    file = write(tmp_path, space=space, sampler=SAMPLERS["grid"], pruner=ASHA, fixed={"noise": 0.0})
    assert "1 complete, 1 pruned" in ludus("sweep", file, *PLUGIN).out
    listed = ludus("runs", "--root", "sweeps/climb/runs", "--json").json["runs"]
    assert {row["name"]: row["status"] for row in listed} == {
        "0000-seed0": "finished", "0001-seed0": "pruned",
    }  # fmt: skip
    place = "sweeps/climb/runs/0001-seed0"
    page = Path(ludus("report", place).out.strip()).read_text()
    assert "A sweep ended the run early: asha: 2 of 2 at opt_steps 2" in page
    assert ludus("resume", place, "--json", *PLUGIN).json["status"] == "finished"


def test_a_sweep_whose_trials_all_failed_is_an_error_with_the_first_reason(
    ludus: Ludus, tmp_path: Path
) -> None:
    file = write(tmp_path, budget__max_trials=2, fixed={"mood": "raises"})
    done = ludus("sweep", file, *PLUGIN)
    assert done.code == 1
    assert "2 of 2 trials failed, the first because of: ValueError: the rope broke" in done.err


def test_plan_and_explain_describe_a_sweep_and_train_names_its_command(
    ludus: Ludus, tmp_path: Path
) -> None:
    file = write(tmp_path, seeds="0-2")
    plan = ludus("plan", file, *PLUGIN).out
    assert "trial: chosen by random, over" in plan
    assert "run x 3 (seeds 0, 1, 2)" in plan
    assert "budget.max_trials = 4" in ludus("explain", file, "max_trials").out
    assert "`ludus sweep climb.yaml` runs it" in ludus("train", file).refusal()
    assert "a stream's is one of: datacenter, edge" in ludus("stream", file).refusal()
    assert (
        "a sweep's is one of: population, sweep" in ludus("sweep", "hill.yaml", *PLUGIN).refusal()
    )


def test_new_prints_the_whole_file_and_the_list_names_it(ludus: Ludus) -> None:
    assert yaml.safe_load(ludus("new", "sweep").out)["kind"] == "sweep"
    assert "Searches for the learning rate" in ludus("new").out


def test_an_interrupted_sweep_saves_and_says_how_to_go_on(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    from ludus.sweep.run import SweptSession

    look, seen = SweptSession._look, [0]

    def interrupted(self: SweptSession, run: object) -> None:
        seen[0] += 1
        if seen[0] == 9:
            os.kill(os.getpid(), signal.SIGINT)
        look(self, run)  # type: ignore[arg-type]

    monkeypatch.setattr(SweptSession, "_look", interrupted)
    file = write(tmp_path, budget__max_trials=3)
    done = ludus("sweep", file, *PLUGIN)
    assert done.code == 0
    assert f"interrupted; to go on: ludus sweep {file} --plugin {HILL}" in done.out
    rows = json.loads((tmp_path / "sweeps/climb/trials.json").read_text())
    assert [row["state"] for row in rows] == ["complete", "open"]
    assert "finished: 3 trials (3 complete)" in ludus("sweep", file, *PLUGIN).out
    rows = json.loads((tmp_path / "sweeps/climb/trials.json").read_text())
    assert [row["state"] for row in rows] == ["complete"] * 3


@pytest.mark.usefixtures("warm_children")
def test_workers_save_their_runs_when_the_sweep_is_interrupted(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    from ludus.sweep.search import Search

    ended, seen = Search.ended, [0]

    def interrupted(self: Search, task: object, end: object) -> None:
        seen[0] += 1
        if seen[0] == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        ended(self, task, end)  # type: ignore[arg-type]

    monkeypatch.setattr(Search, "ended", interrupted)
    file = write(tmp_path, budget__max_trials=4, engine=LOCAL, fixed={"max_steps": 40})
    done = ludus("sweep", file, *PLUGIN)
    assert done.code == 0
    assert "interrupted; to go on" in done.out
    assert "saving the runs and stopping; once more stops at once" in done.err
    done = ludus("sweep", file, "--json", *PLUGIN)
    assert [row["state"] for row in done.json["trials"]] == ["complete"] * 4


def test_the_live_table_shows_the_best_trials_and_those_under_way() -> None:
    from rich.console import Console

    console = Console(width=120, force_terminal=True, record=True, file=sys.stderr)
    trials = {n: SweepTrial(n, {"optimizer.learning_rate": 0.1 * n}, n) for n in range(3)}
    trials[1].state, trials[1].score = "complete", MeanInterval(0.5, 0.4, 0.6, 3)
    trials[2].state, trials[2].reason = "failed", "ValueError: \x1b[31mno"
    display = SweepDisplay("digits", "eval/return", "max", console, is_silent=False)
    display.open(trials, 9)
    display.began(trials[0], 4)
    display.close()
    shown = console.export_text()
    assert "digits: 3 of 9 trials (1 complete, 1 failed, 1 open)" in shown
    assert "0.5 ± 0.1" in shown
    assert "learning_rate=0.1" in shown
    assert "ValueError: no" in shown
