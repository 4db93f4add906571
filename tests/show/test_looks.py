"""Every series of a chart can be told from the others, and an agent has one colour on a page."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ludus.show.report.page import write_report
from tests.show.test_report import BEST, Page, make_run, write_lines

SPLITS, AGENTS = ("eval", "train"), ("verifier", "prover", "referee")


def arena(*, num_records: int = 3, shift: float = 0.0) -> list[dict[str, Any]]:
    """Return the log of agents that were evaluated while they learned, and tested at the end."""

    def record(n: int, *splits: str) -> dict[str, Any]:
        found: dict[str, Any] = {"opt_steps": 10 * n}
        for i, (split, agent) in enumerate(product(splits, AGENTS)):
            found[f"{split}/{agent}/reward"] = n + i + shift
        # In another order: a colour must not follow from it.
        for i, (split, agent) in enumerate(product(splits, reversed(AGENTS[:2]))):
            found[f"{split}/{agent}/entropy"] = n * i + shift
            found[f"{split}/bits/{agent}"] = n - i + shift
        for split in splits:
            found[f"{split}/accuracy"] = found[f"{split}/verifier/accuracy"] = 0.5 + n / 100 + shift
        return found

    return [*(record(n, *SPLITS) for n in range(1, num_records + 1)), record(num_records, "test")]


def charts(page: Page) -> dict[str, str]:
    """Return the figures of the section of curves, by their titles."""
    curves = page.source.split("<h2>Curves</h2>")[1].split("<h2>")[0]
    figures = re.findall(r"<figcaption>(.*?)</figcaption>(.*?)</figure>", curves, re.DOTALL)
    return dict(figures)


def swatches(figure: str) -> dict[str, str]:
    """Return the swatch of each label of a legend."""
    items = re.findall(r'<li>(<svg class="swatch".*?</svg>)(.*?) <b', figure, re.DOTALL)
    assert len({label for _, label in items}) == len(items)
    return {label: swatch for swatch, label in items}


def colour(swatch: str) -> str:
    found = re.search(r"\bc\d\b", swatch)
    assert found
    return found[0]


def test_an_agent_has_the_same_colour_in_all_charts_of_a_run(tmp_path: Path) -> None:
    found = charts(Page(write_report([make_run(tmp_path / "run", metrics=arena())])))
    colours: dict[str, set[str]] = {}
    for kind in ("reward", "entropy", "bits"):
        for label, swatch in swatches(found[kind]).items():
            colours.setdefault(label.rpartition("/")[2], set()).add(colour(swatch))
    assert set(colours) == set(AGENTS)
    assert all(len(each) == 1 for each in colours.values())
    assert len(set.union(*colours.values())) == len(AGENTS)


def test_dashes_tell_an_evaluation_from_training_in_all_charts_of_a_run(tmp_path: Path) -> None:
    found = charts(Page(write_report([make_run(tmp_path / "run", metrics=arena())])))
    for kind in ("reward", "entropy"):
        looks = swatches(found[kind])
        assert "d0" in looks["train/verifier"]
        assert "d1" in looks["eval/verifier"]
        assert "mark" in looks["test/verifier"]


@pytest.mark.parametrize("num_runs", [1, 3, 10])
def test_no_two_series_of_a_chart_look_the_same(tmp_path: Path, num_runs: int) -> None:
    runs = []
    for n in range(num_runs):
        rows = arena(shift=n / 7)
        for row in rows[:3]:
            row |= {f"pool/share/{k}": row["opt_steps"] * k + n for k in range(7)}
        runs.append(make_run(tmp_path / f"run-{n}", metrics=rows, name=f"run-{n}"))
    found = charts(Page(write_report(runs, tmp_path / "page.html")))
    assert len(swatches(found["share"])) == 7 * num_runs
    for title, figure in found.items():
        looks = swatches(figure)
        assert len(set(looks.values())) == len(looks), title


def test_a_comparison_has_a_chart_for_each_agent_and_a_colour_for_each_run(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / name, metrics=arena(shift=shift), name=name)
        for name, shift in (("first", 0.0), ("second", 0.3))
    ]
    found = charts(Page(write_report(runs, tmp_path / "page.html")))
    assert {f"reward · {agent}" for agent in AGENTS} <= set(found)
    looks = swatches(found["reward · prover"])
    assert list(looks) == [
        f"{name} · {split}" for name in ("first", "second") for split in ("train", "eval", "test")
    ]
    for name in ("first", "second"):
        assert len({colour(one) for label, one in looks.items() if name in label}) == 1


def test_what_an_agent_shares_with_the_whole_is_drawn_once_and_said(tmp_path: Path) -> None:
    best = {
        **BEST,
        "metric": "eval/verifier/accuracy",
        "mode": "max",
        "counters": {"opt_steps": 20},
    }
    runs = [
        make_run(tmp_path / name, metrics=arena(), name=name, ending={"best": best})
        for name in ("first", "second")
    ]
    one = charts(Page(write_report(runs[:1])))
    assert list(swatches(one["accuracy"])) == [
        f"{split}, {split}/verifier" for split in ("train", "eval", "test")
    ]
    assert "best of eval, eval/verifier" in one["accuracy"]
    both = charts(Page(write_report(runs, tmp_path / "page.html")))
    assert "accuracy (the same of verifier)" in both
    assert "accuracy · verifier" not in both
    rows = arena()
    rows[1]["train/verifier/accuracy"] = 0.9
    write_lines(runs[1] / "metrics.jsonl", rows)
    both = charts(Page(write_report(runs, tmp_path / "page.html")))
    assert {"accuracy", "accuracy · verifier"} <= set(both)


def raised(root: Path, *ends: int) -> Page:
    """Return the page of a run that was tested at each of these ends."""
    rows = [{"opt_steps": end, "train/loss": 1 / end, "test/loss": 2 / end} for end in ends]
    run = make_run(root, metrics=[{"opt_steps": 1, "train/loss": 1.0}, *rows])
    told = [{"time": 1.0, "event": "started"}]
    told += [{"time": 2.0, "event": "finished", "counters": {"opt_steps": end}} for end in ends]
    write_lines(run / "events.jsonl", told)
    return Page(write_report([run]))


def test_tests_before_and_after_a_raised_length_are_points(tmp_path: Path) -> None:
    page = raised(tmp_path / "run", 10, 20, 30)
    figure = charts(page)["loss"]
    (dots,) = re.findall(r'<path class="mark c1" d="(.*?)"', figure.split("<ul")[0])
    assert dots.count("M") == 3
    assert page.paths("c1 d0") == []
    assert page.paths("c0 d0")
    assert "mark c1" in swatches(figure)["test"]


def test_tests_along_a_run_are_a_line(tmp_path: Path) -> None:
    rows = [{"opt_steps": n, "test/loss": 1 / n} for n in (1, 2, 3)]
    page = Page(write_report([make_run(tmp_path / "run", metrics=rows)]))
    assert page.paths("c0 d0")


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5], [0.5, 0.7, 0.6]])
def test_values_at_one_place_are_dots_that_can_be_seen(tmp_path: Path, values: list[float]) -> None:
    rows = [{"opt_steps": 120, "train/loss": value} for value in values]
    page = Page(write_report([make_run(tmp_path / "run", metrics=rows)]))
    drawn = charts(page)["loss"].split("<ul")[0]
    (dots,) = re.findall(r'<path class="mark c0" d="(.*?)"', drawn)
    assert dots.count("M") == len(set(values))
    assert dots.count("a3.6 3.6") == 2 * len(set(values))
    assert 'class="line' not in drawn


def test_what_is_told_as_strange_counters_of_an_end_does_not_stop_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", metrics=arena(), ending={"counters": {"opt_steps": [1, {}]}})
    assert "reward" in charts(Page(write_report([run])))


def test_a_run_that_chooses_no_best_has_no_tile_for_it(tmp_path: Path) -> None:
    rows = [{"opt_steps": 1, "test/accuracy": 0.5}]
    tested = make_run(tmp_path / "tested", metrics=rows, ending={"best": None}, name="tested")
    told = Page(write_report([tested])).text.split("The run came to its end")[1]
    assert "best" not in told.lower()
    rows = [{"opt_steps": 1, "eval/accuracy": "nan"}]
    chosen = make_run(tmp_path / "chosen", metrics=rows, ending={"best": None}, name="chosen")
    page = Page(write_report([chosen]))
    assert "best score: no best model was recorded" in page.text
    assert "No best model was recorded." in page.text
    both = Page(write_report([tested, chosen], tmp_path / "page.html"))
    cells = re.findall(r'<td data-title="best">(.*?)</td>', both.source)
    assert cells == ["-", "none"]


def test_a_note_on_a_file_that_was_read_twice_stands_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(about | {"kind": "rerun_tests"}))
    (run / "metrics.jsonl").write_text("torn}\n{}\n")
    page = Page(write_report([run]))
    assert page.text.count("metrics.jsonl has 1 damaged line") == 1
    assert "No model was tested yet." in page.text
