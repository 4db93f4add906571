"""The page of a sweep and of a population."""

from __future__ import annotations

import itertools
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ludus.judge.confidence import mean_interval
from ludus.show.report.charts import line_chart
from ludus.show.report.files import ReportedRun
from ludus.show.report.page import write_report
from ludus.store.local import LocalStorage
from ludus.sweep import Sweeper, SweepResult
from ludus.sweep.base import Base
from ludus.sweep.config import given_sweep
from ludus.sweep.curve import MetricCurve, Point
from ludus.sweep.directory import begin_or_compare
from ludus.sweep.display import ranked
from ludus.sweep.population.record import PopulationRecord
from ludus.sweep.report._curves import _line
from ludus.sweep.report._importance import _shares
from ludus.sweep.report._read import axis_of, log_scale, read_sweep
from ludus.sweep.report.sweep import sweep
from ludus.sweep.trials import RunOutcome, SweepTrial
from ludus.sweep.variables import Choice, IntLogRange, LogRange
from tests.sweep.small import ASHA, among, population_data, sweep_data, swept, within

_VOID = {"meta", "link"}


class Tags(HTMLParser):
    """Counts the tags of a page, and checks that each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(folder: Path) -> str:
    page = write_report([folder]).read_text()
    assert Tags(page).open == []
    assert "could not be made" not in page
    return page


def bodies(folder: Path) -> dict[str, str]:
    """Return the sections of a sweep, by their titles."""
    return {one.title: one.body for one in sweep([ReportedRun(str(folder), {})])}


def populated(folder: Path, **changed: Any) -> SweepResult:
    data = population_data(folder, fixed={"noise": 0.0}, **changed)
    return Sweeper(data).sweep(root=folder / "sweeps", show_on="none")


def test_the_page_of_a_sweep_has_its_best_config_its_trials_and_what_mattered(
    tmp_path: Path,
) -> None:
    space = {"x": within(0.0, 1.0), "size": among(4, 8), "noise": within(0.0, 0.1)}
    result = swept(tmp_path, space=space, seeds="0-1", budget__max_trials=10)
    place = Path(result.sweep_dir)
    page = page_of(place)
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles == [
        "Best config", "Trials", "Scores", "Importance", "Values and scores", "Parallel coordinates",
        "Curves of the trials",
    ]  # fmt: skip
    found = bodies(place)
    assert (place / "best.yaml").read_text().splitlines()[3] in found["Best config"]
    assert result.best is not None
    assert "over 2 seeds" in found["Best config"]
    assert found["Trials"].count("<tr>") == 1 + 10
    assert found["Values and scores"].count("<figure") == 3
    assert found["Parallel coordinates"].count('class="line') == 10
    assert found["Importance"].count('class="bar"') == 3
    assert '<path class="range' in found["Curves of the trials"]


def test_the_key_that_decides_has_the_largest_share(tmp_path: Path) -> None:
    space = {"x": within(0.0, 3.0), "noise": within(0.0, 0.001)}
    result = swept(tmp_path, space=space, budget__max_trials=30, fixed={"max_steps": 3})
    found = read_sweep(ReportedRun(result.sweep_dir, {}))
    assert found is not None
    shares = _shares(found, list(found.trials))
    assert shares["x"] > 0.8


def test_few_trials_have_no_importance_and_a_pruned_one_says_why(tmp_path: Path) -> None:
    space = {"x": among(0.3, 0.9, 0.95), "y": among(0.6)}
    result = swept(tmp_path, space=space, sampler={"kind": "grid"}, pruner=ASHA)
    found = bodies(Path(result.sweep_dir))
    assert "with 8 or more it can be estimated" in found["Importance"]
    assert "asha: 2 of 2 at opt_steps 2, where 1 go on" in found["Trials"]


def test_pruned_trials_stand_after_the_complete_ones_by_the_values_of_their_runs() -> None:
    def trial(number: int, state: Any, *values: float | None) -> SweepTrial:
        runs = {
            seed: RunOutcome(seed, "pruned", None, value, {}, 1, f"runs/{number}")
            for seed, value in enumerate(values)
        }
        score = mean_interval((0.5,), confidence=0.95) if state == "complete" else None
        return SweepTrial(number, {}, 0, runs, state, None, score)

    trials = [
        trial(0, "failed", None),
        trial(1, "pruned", 3.0, 2.0),
        trial(2, "pruned", float("nan"), 1.0),
        trial(3, "complete", 0.5),
    ]
    assert [one.number for one in ranked(trials, "min")] == [3, 2, 1, 0]
    assert [one.number for one in ranked(trials, "max")] == [3, 1, 2, 0]


def test_the_line_of_a_trial_is_the_mean_of_straight_lines_as_on_the_page_of_its_runs() -> None:
    def of(*values: tuple[int, float]) -> MetricCurve:
        return MetricCurve([Point({"epoch": step}, value) for step, value in values])

    trial = SweepTrial(3, {}, 0)
    curves = [of((0, 0.0), (10, 10.0)), of((0, 2.0), (5, 1.0), (7, math.nan), (20, 1.0))]
    line = _line(trial, curves, "epoch", 0)
    assert line is not None
    assert (line.xs, line.ys) == ([0, 5, 10], [1, 3, 5.5])
    assert (line.lows, line.highs) == ([0, 1, 1], [2, 5, 10])
    assert line.num_left_out == 1
    nothing = _line(trial, [of((0, math.inf))], "epoch", 0)
    assert nothing is not None
    assert "trial 3 <b>no value</b>" in line_chart("x", [nothing], x_label="epoch")
    assert _line(trial, [], "epoch", 0) is None


def test_the_page_of_a_population_has_its_lineage_and_the_schedule_of_the_best(
    tmp_path: Path,
) -> None:
    result = populated(tmp_path, seed=0)
    record = PopulationRecord(LocalStorage(result.sweep_dir))
    page = page_of(Path(result.sweep_dir))
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "Best config", "Members", "Lineage", "Schedule", "Curves of the members",
    ]  # fmt: skip
    found = bodies(Path(result.sweep_dir))
    num_moves = sum(map(len, record.moves.values()))
    assert found["Lineage"].count("took over the checkpoint of member") == num_moves
    # The ancestry of the best: a stretch for each generation, and an arrow for each change of members.
    assert result.best is not None
    ancestors = record.ancestors(result.best.number)
    num_changes = sum(one != two for one, two in itertools.pairwise(ancestors))
    assert num_changes > 0
    assert found["Lineage"].count('class="line c1"') == len(ancestors) + num_changes
    assert found["Schedule"].count("<figure") == 2
    assert "not finite" not in found["Curves of the members"]


def test_nothing_recorded_reaches_the_page_unescaped(tmp_path: Path) -> None:
    space = {"x": among(0.3), "mood": among("raises", "well")}
    result = swept(tmp_path, space=space, sampler={"kind": "grid"})
    journal = Path(result.sweep_dir) / "journals/sweep.jsonl"
    evil = "<script>alert(1)</script><u a='\\\"'>"
    journal.write_text(journal.read_text().replace("the rope broke", evil))
    yaml = Path(result.sweep_dir) / "best.yaml"
    yaml.write_text(yaml.read_text() + "# <script>alert(2)</script>\n")
    page = write_report([result.sweep_dir]).read_text()
    assert "alert(1)" in page
    assert "alert(2)" in page
    assert "script" not in Tags(page).seen
    assert "u" not in Tags(page).seen


@pytest.mark.parametrize("key", ["lr", "learning_rate", "optimizer.learning_rate"])
def test_a_key_of_the_space_has_the_path_on_the_page_that_it_has_in_the_points(
    tmp_path: Path, key: str
) -> None:
    rate = {"kind": "log_range", "low": 0.001, "high": 0.1, "when": None}
    config = given_sweep(sweep_data(tmp_path, base="supervised", space={key: rate}))
    (tmp_path / "sweep").mkdir()
    base, storage = Base(config), LocalStorage(tmp_path / "sweep")
    begin_or_compare(storage, config, base)
    found = read_sweep(ReportedRun(storage.place, {}))
    assert found is not None
    assert [*found.space] == [*base.space.variables] == ["optimizer.learning_rate"]


def test_a_sweep_goes_on_although_its_page_is_in_its_directory(tmp_path: Path) -> None:
    page_of(Path(swept(tmp_path, budget__max_trials=1).sweep_dir))
    assert len(swept(tmp_path, budget__max_trials=2).trials) == 2


def test_a_sweep_without_a_whole_trial_says_so(tmp_path: Path) -> None:
    result = swept(tmp_path, budget__max_trials=2, fixed={"mood": "raises"})
    page = page_of(Path(result.sweep_dir))
    assert "No trial is complete yet. The first reason: ValueError: the rope broke." in page
    assert "Scores" not in page


def test_a_damaged_record_is_told_on_the_page(tmp_path: Path) -> None:
    place = Path(swept(tmp_path, budget__max_trials=1).sweep_dir)
    journal = place / "journals/sweep.jsonl"
    journal.write_text("\n".join(journal.read_text().splitlines()[2:]) + "\n")
    page = write_report([place]).read_text()
    assert "could not be made" in page
    assert "is damaged" in page


@pytest.mark.parametrize("kind", [LogRange, IntLogRange])
def test_a_range_by_its_logarithm_has_a_logarithmic_axis(kind: Any) -> None:
    name = "log_range" if kind is LogRange else "int_log_range"
    made = kind(kind=name, low=10, high=1000, when=None)
    axis = axis_of("a", made)
    assert axis.scale.is_log
    assert list(axis.scale.labels) == ["10", "100", "1000"]
    assert axis.scale.place(100) == pytest.approx(0.5)
    assert len(log_scale(0.2, 0.5).ticks) == 3


def test_a_choice_has_a_place_for_each_value() -> None:
    made = Choice(kind="choice", values=[None, {"kind": "a"}, True, 1], when=None)
    axis = axis_of("a", made)
    assert [axis.place(value) for value in made.values] == [0.0, 1.0, 2.0, 3.0]
    assert axis.place("other") is None
