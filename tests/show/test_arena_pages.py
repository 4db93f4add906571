"""Agents that meet log many figures: what a pipe and a report make of them, and of models tested again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.show.report.page import write_report
from tests.arena.small import QUIET, example, small_arena
from tests.show.test_report import HOSTILE, SCRIPTED_TAGS, Page, make_run

ADAM = {"kind": "adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
PRETRAINING = {
    "agents": ["verifier", "prover"],
    "iterations": 3,
    "batch_size": 8,
    "optimizer": {**ADAM, "learning_rate": 0.003},
}


def test_a_pipe_is_told_each_pass_of_pretraining_and_the_first_figures_of_an_iteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_arena(pretraining=PRETRAINING, **{"settings.display": "plain"})
    ludus.build_trainer(config).fit(root=str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    passes = [line for line in lines if line.startswith("pretraining ")]
    assert [line.split("  ")[0] for line in passes] == [f"pretraining {n}/3" for n in (1, 2, 3)]
    later = [line for line in lines if line.startswith(("iteration ", "test "))]
    assert later
    for line in later:
        assert "pretraining/" not in line
        assert len(line) < 160
        assert len(re.findall(r"(?:train|eval|test)/\S+ \S+", line)) >= 2
        assert re.search(r"\(\+ \d+ more\)", line)
    assert "train/loss" in later[0]
    assert "  eval/accuracy " in next(line for line in later if "iteration 2/3" in line)


def test_a_report_of_models_tested_again_has_a_table_of_them(tmp_path: Path) -> None:
    earlier = ludus.build_trainer(small_arena()).fit(root=str(tmp_path), name="earlier")
    config = example("rerun_tests").replace(**QUIET, run=str(earlier.run_dir), episodes=8)
    again = ludus.build_trainer(config).fit(root=str(tmp_path), name="again").run_dir
    page = Page(write_report([str(again)]))
    rows = table(page)
    lines = Path(str(again), "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    assert [row[0] for row in rows[1:]] == [line["text"]["model"] for line in logged]
    assert "models/final" in {row[0] for row in rows}
    head = [title.replace("\u200b", "") for title in rows[0]]
    assert head[:3] == ["model", "iterations", "accuracy"]
    assert {"verifier/reward", "prover/reward"} <= set(head)
    for row, line in zip(rows[1:], logged, strict=True):
        assert row[1] == str(line["iteration"])
        assert float(row[2]) == pytest.approx(line["test/accuracy"], rel=1e-4)
    assert f"What {earlier.run_dir} has kept, each tested in 8 episodes." in page.text
    assert "Texts" not in page.text
    assert "best score" not in page.text


def table(page: Page) -> list[list[str]]:
    body = page.source.split("<h2>Tested models</h2>")[1].split("</table>")[0]
    rows = body.split("<tr>")[1:]
    return [re.findall(r"<t[hd]>(?:<b>)?(.*?)(?:</b>)?</t[hd]>", row) for row in rows]


def a_rerun(directory: Path, *found: dict[str, Any], name: str = "again") -> Path:
    """Return a run that tested models, as far as its report can tell."""
    run = make_run(directory, metrics=list(found), ending={"best": None}, name=name)
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(about | {"kind": "rerun_tests"}))
    return run


def of(model: str, **figures: object) -> dict[str, Any]:
    return {
        "opt_steps": 4,
        "text": {"model": model},
        **{f"test/{k}": v for k, v in figures.items()},
    }


def test_the_best_of_a_column_is_bold_and_what_was_not_measured_is_left_open(
    tmp_path: Path,
) -> None:
    run = a_rerun(
        tmp_path / "run",
        of("models/4", accuracy=0.5, **{"verifier/accuracy": 0.5, "verifier/precision": 0.25}),
        of("models/8", accuracy=0.75, **{"verifier/accuracy": 0.75}),
    )
    page = Page(write_report([run]))
    assert table(page) == [
        ["model", "optimiser steps", "accuracy", "verifier/\u200bprecision"],
        ["models/4", "4", "0.5", "0.25"],
        ["models/8", "4", "0.75", "-"],
    ]
    assert re.findall(r"<td><b>(.*?)</b>", page.source) == ["0.75"]


def test_words_of_an_enemy_are_no_markup_and_broken_lines_no_models(tmp_path: Path) -> None:
    spoilt = [of(word, **{word: 0.5, f"{word}/accuracy": 1}) for word in HOSTILE]
    broken = [{"text": 3}, {"text": {"model": ["a"]}, "test/x": 1}, of("empty"), of("x", y="z")]
    page = Page(write_report([a_rerun(tmp_path / "run", *spoilt, *broken)]))
    assert page.tags <= SCRIPTED_TAGS
    assert len(table(page)) == 1 + len(HOSTILE)


def test_only_runs_that_tested_models_have_the_table(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", name="plain")
    assert "Tested models" not in Page(write_report([plain])).text
    runs = [a_rerun(tmp_path / name, of("final", loss=1.0), name=name) for name in ("one", "two")]
    page = Page(write_report([plain, *runs], tmp_path / "page.html"))
    assert page.source.count("<h2>Tested models</h2>") == 1
    assert "<h3>one</h3>" in page.source
    assert "<h3>two</h3>" in page.source
    assert "<h3>plain</h3>" not in page.source
