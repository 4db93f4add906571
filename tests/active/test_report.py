"""The report shows what a run of active learning asked for, was answered and came to know."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.active.drift.estimator import BaselineConfig, ByBaseline, Window
from ludus.active.recording import _thumbnail
from ludus.show.report.page import write_report
from tests.active.conftest import HUMAN, small_active
from tests.command_line import Ludus
from tests.show.test_report import HOSTILE, SCRIPTED_TAGS, Page, make_run

TITLES = ("Accuracy against labels", "Class balance", "Calibration on", "What was queried")
UNIFORM = {"kind": "uniform"}


def trained(root: Path, name: str, **changes: Any) -> Path:
    ludus.build_trainer(small_active(**changes)).fit(root=root, name=name)
    return root / name


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of runs: wines by two strategies with two seeds, and digits."""
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        trained(root, f"margin-{seed}", seed=seed)
        trained(root, f"uniform-{seed}", seed=seed, strategy=UNIFORM, experiment=f"seed-{seed}")
    digits = ludus.example("active", max_rounds=2, max_epochs=1, **{"settings.display": "none"})
    ludus.build_trainer(digits.replace(name="digits")).fit(root=root)
    return root


@pytest.fixture
def root(kept: Path, tmp_path: Path) -> Path:
    """Return a copy of these runs that a test may spoil."""
    shutil.copytree(kept, tmp_path / "runs")
    return tmp_path / "runs"


def page_of(*runs: Path) -> Page:
    page = Page(write_report(runs, runs[0].parent / "page.html"))
    assert page.tags <= {*SCRIPTED_TAGS, "img"}
    assert "could not be made" not in page.text
    return page


def section(page: Page, title: str) -> str:
    found = page.source.split(f"<h2>{title}")
    assert len(found) == 2, f"{title} stands {len(found) - 1} times"
    return found[1].split("<h2>")[0]


def accuracies(run: Path) -> dict[int, float]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {row["labels"]: row["test/accuracy"] for row in rows if "test/accuracy" in row}


def edited(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_runs_that_differ_only_in_the_seed_are_one_line_with_the_range_of_them(root: Path) -> None:
    runs = [root / name for name in ("margin-0", "uniform-0", "margin-1", "uniform-1")]
    shown = section(page_of(*runs), "Accuracy against labels")
    areas = re.findall('<path class="range c[01]" d="M(.*?)Z"/>', shown)
    # There along the highest of three places, and back along the lowest.
    assert [area.count("L") + 1 for area in areas] == [6, 6]
    for kind in ("margin", "uniform"):
        last = [accuracies(root / f"{kind}-{seed}")[14] for seed in (0, 1)]
        mean = re.search(rf"{kind} \(2 seeds\) <b[^>]*>([\d.]+)</b>", shown)
        assert mean
        assert float(mean[1]) == pytest.approx(sum(last) / 2, abs=1e-4)
        assert f"({min(last):.5g} to {max(last):.5g})" in shown
    assert "the area around it reaches from the lowest to the highest" in shown


def test_one_run_is_one_line_and_has_no_range(root: Path) -> None:
    shown = section(page_of(root / "margin-0"), "Accuracy against labels")
    assert '<path class="range' not in shown
    assert len(re.findall('<path class="line c0 d0"', shown)) == 2
    assert "seeds" not in shown


def test_lines_are_told_apart_by_what_differs_besides_the_seed(root: Path) -> None:
    other = trained(root, "fewer", queries=3)
    shown = section(page_of(root / "margin-0", root / "margin-1", other), "Accuracy against labels")
    assert "margin, queries 4 (2 seeds)" in shown
    assert "margin, queries 3 <b" in shown
    assert shown.count('<path class="range') == 1


def test_a_line_goes_as_far_as_all_its_seeds_and_says_which_was_cut_short(root: Path) -> None:
    path = root / "margin-1/metrics.jsonl"
    rows = [line for line in path.read_text().splitlines() if json.loads(line)["labels"] < 14]
    path.write_text("\n".join(rows) + "\n")
    shown = section(page_of(root / "margin-0", root / "margin-1"), "Accuracy against labels")
    assert "margin-1 was last tested with 10 labels; the line of margin (2 seeds) goes as" in shown
    mean = (accuracies(root / "margin-0")[10] + accuracies(root / "margin-1")[10]) / 2
    assert f'margin (2 seeds) <b title="the last value">{mean:.5g}</b>' in shown


def test_runs_that_do_not_say_what_they_were_made_with_are_lines_of_their_own(root: Path) -> None:
    for name in ("margin-0", "margin-1"):
        edited(root / name / "run.json", config=None)
    shown = section(page_of(root / "margin-0", root / "margin-1"), "Accuracy against labels")
    assert "margin-0 <b" in shown
    assert "margin-1 <b" in shown


def test_a_run_that_waits_for_its_first_labels_says_that_no_round_was_tested(
    tmp_path: Path,
) -> None:
    page = page_of(trained(tmp_path, "waiting", oracle=HUMAN))
    assert "No round was tested yet." in section(page, "Accuracy against labels")
    assert "What was queried" not in page.text


def test_pictures_are_shown_with_their_answers(root: Path) -> None:
    trainer: Any = ludus.build_trainer(
        ludus.example("active", **{"settings.display": "none"}).replace(name="digits")
    )
    trainer.prepare(max_steps=None)
    targets = trainer.examples.targets_in_memory.tolist()
    shown = section(page_of(root / "digits"), "What was queried")
    items = re.findall(
        r'<li title="row (\d+)"><img src="data:image/png;base64,(\S+?)" [^>]*><b>(\d)', shown
    )
    assert len(items) == 12 + 10
    assert all(int(answer) == targets[int(row)] for row, _, answer in items)
    assert "Round 0: 20 examples by uniform, the first 12 of them" in shown
    assert "Round 1: 10 examples by margin</h3>" in shown
    row, picture, _ = items[-1]
    pixels_HW = trainer.examples.inputs(torch.tensor([int(row)]))[0].reshape(8, 8)
    assert torch.equal(
        decoded(picture), (pixels_HW / pixels_HW.max() * 255).round().long()[..., None]
    )


def decoded(picture: str) -> torch.Tensor:
    """Return the pixels (H, W, C) of a PNG file whose lines have no filter."""
    data = base64.b64decode(picture)
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    channels = {0: 1, 2: 3}[data[25]]
    size = int.from_bytes(data[33:37], "big")
    lines = torch.tensor(list(zlib.decompress(data[41 : 41 + size]))).reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, channels)


def test_large_and_coloured_pictures_are_made_small_and_keep_their_colours() -> None:
    picture_CHW = torch.zeros(3, 100, 50)
    picture_CHW[0, :50] = 7.0
    small = decoded(_thumbnail(picture_CHW))
    assert small.shape == (32, 16, 3)
    assert small[0, 0].tolist() == [255, 0, 0]
    assert small[-1, 0].tolist() == [0, 0, 0]
    assert decoded(_thumbnail(torch.full((2, 4, 4), torch.nan))).shape == (4, 4, 1)


def test_rows_of_a_table_are_shown_by_their_numbers_with_their_answers(root: Path) -> None:
    shown = section(page_of(root / "margin-0"), "What was queried")
    told = json.loads((root / "margin-0/asked/round-0002.json").read_text())
    assert len(told["examples"]) == 4
    for one in told["examples"]:
        cells = f"<td>{one['row']}</td><td>{one['label']}</td><td>{one['numbers'][0]:,.4g}</td>"
        assert cells in shown
    assert "<td>and 5 more</td>" in shown
    assert "<img" not in shown


def test_the_balance_of_the_labels_stands_beside_that_of_the_pool(root: Path) -> None:
    shown = section(page_of(root / "margin-0"), "Class balance of the labels")
    records = map(json.loads, (root / "margin-0/journals/labels.jsonl").read_text().splitlines())
    labels = [label for one in records for label in one["record"]["labels"]]
    assert len(labels) == 14
    trainer: Any = ludus.build_trainer(small_active())
    trainer.prepare(max_steps=None)
    pool = trainer.examples.targets_in_memory.tolist()
    for at in range(3):
        row = shown.split(f"<tr><th>{at}</th>")[1].split("</tr>")[0]
        told = [(int(a), int(b)) for a, b in re.findall(r'title="(\d+) of (\d+)"', row)]
        assert told[0] == (labels[:6].count(at), 6)
        assert told[2:] == [(labels.count(at), 14), (pool.count(at), len(pool))]
        assert f">{labels.count(at) / 14:.0%}</td>" in row


def test_the_calibration_curve_has_the_error_that_was_logged(root: Path) -> None:
    shown = section(page_of(root / "digits"), "Calibration on the test data")
    rows = map(json.loads, (root / "digits/metrics.jsonl").read_text().splitlines())
    logged = [row for row in rows if "test/ece" in row]
    assert shown.count("<figure>") == len(logged) == 2
    for row in logged:
        assert f"as predicted <b>ECE {row['test/ece']:.3f}</b>" in shown
        told = rf"with temperature [\d.]+ <b>ECE {row['test/ece_scaled']:.3f}</b>"
        assert re.search(told, shown)


def test_names_that_people_gave_are_shown_and_are_never_markup(root: Path) -> None:
    run = root / "margin-0"
    for path in (run / "asked").iterdir():
        told = json.loads(path.read_text())
        examples = [{**one, "columns": (HOSTILE * 2)[:8]} for one in told["examples"]]
        edited(path, class_names=HOSTILE[:3], how=HOSTILE[0], examples=examples)
    candidates = [{"name": HOSTILE[0], "score": None, "parameters": 3, "is_taken": True}]
    (run / "ranking.json").write_text(
        json.dumps({"format": 1, "by": HOSTILE[1], "candidates": candidates})
    )
    about = json.loads((run / "run.json").read_text())
    about["config"]["strategy"]["kind"] = HOSTILE[0]
    (run / "run.json").write_text(json.dumps(about))
    page = page_of(run)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    for title in ("Class balance", "What was queried", "Ranking of the candidates", "Accuracy"):
        assert HOSTILE[0].replace("<", "&lt;").replace(">", "&gt;") in section(page, title), title


SPOILT = {
    "not JSON": "{",
    "empty": "",
    "a list": "[]",
    "another format": '{"format": 2}',
    "deep": "[" * 100_000,
    "bytes": "\udcff",
}


@pytest.mark.parametrize("text", SPOILT.values(), ids=SPOILT)
def test_a_file_that_was_spoilt_is_a_sentence_in_the_place_of_a_picture(
    root: Path, text: str
) -> None:
    run, data = root / "margin-0", text.encode(errors="surrogateescape")
    for name in ("asked/round-0001.json", "calibration_1.json", "ranking.json"):
        (run / name).write_bytes(data)
    page = page_of(run)
    for title, name in (
        ("What was queried", "asked/round-0001.json"),
        ("Calibration on", "calibration_1.json"),
        ("Ranking of the candidates", "ranking.json"),
    ):
        shown = section(page, title)
        assert re.search(rf'<p class="warn">{name}[^<]*; it is left out here\.</p>', shown), shown
    assert "Round 0" in section(page, "What was queried")
    assert "Round 2" in section(page, "What was queried")


@pytest.mark.parametrize(
    "changes",
    [
        {"picture": 'x" onerror="alert(1)'},
        {"row": -1},
        {"label": None},
        {"numbers": ["many"]},
        {"more": 1},
    ],
)
def test_an_example_that_was_edited_wrongly_is_refused(root: Path, changes: dict[str, Any]) -> None:
    path = root / "margin-0/asked/round-0001.json"
    told = json.loads(path.read_text())
    told["examples"][0] |= changes
    path.write_text(json.dumps(told))
    page = page_of(root / "margin-0")
    shown = section(page, "What was queried")
    assert "asked/round-0001.json is not as the run wrote it: examples.0." in shown
    assert "alert(1)" not in page.source


def test_files_that_are_gone_leave_their_section_out(root: Path) -> None:
    run = root / "margin-0"
    shutil.rmtree(run / "asked")
    for path in run.glob("calibration_*"):
        path.unlink()
    page = page_of(run)
    assert "What was queried" not in page.text
    assert "Class balance" not in page.text
    assert "Calibration on" not in page.text


def test_of_many_rounds_the_first_and_the_last_are_shown_and_the_rest_counted(root: Path) -> None:
    run = root / "margin-0"
    for number in range(3, 40):
        shutil.copy(run / "asked/round-0002.json", run / f"asked/round-{number:04d}.json")
        edited(run / f"asked/round-{number:04d}.json", round=number)
    shown = section(page_of(run), "What was queried")
    rounds = [int(number) for number in re.findall(r"<h3>Round (\d+):", shown)]
    assert len(rounds) == 12
    assert (rounds[0], rounds[-1]) == (0, 39)
    assert "28 rounds between these are left out." in shown


def test_people_are_shown_the_names_that_their_classes_have(call: Ludus, tmp_path: Path) -> None:
    names = ["Barolo", "Grignolino", "Barbera & co"]
    run = trained(tmp_path / "runs", "w", oracle={"kind": "human", "class_names": names})
    rows = json.loads((run / "queries/round-0000.json").read_text())["rows"]
    lines = ["row,label", *(f"{row},{at % 3}" for at, row in enumerate(rows))]
    Path("answers.csv").write_text("\n".join(lines) + "\n")
    assert call("label", str(run), "--csv", "answers.csv").code == 0
    assert call("resume", str(run)).code == 0
    page = page_of(run)
    assert "<td>Barbera &amp; co</td>" in section(page, "What was queried")
    assert "<th>Barbera &amp; co</th>" in section(page, "Class balance of the labels")


def test_a_resumed_run_leaves_the_same_records(kept: Path, tmp_path: Path) -> None:
    for words in ({"max_rounds": 1}, {"max_rounds": 3}):
        trainer = ludus.build_trainer(small_active(**words))
        trainer.fit(root=tmp_path, name="again", resume=words["max_rounds"] > 1)
    for path in sorted((kept / "margin-0/asked").iterdir()):
        assert (tmp_path / "again/asked" / path.name).read_bytes() == path.read_bytes()


def test_a_page_of_another_family_has_none_of_these_sections(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path / "run"))
    assert not [title for title in (*TITLES, "Ranking of the") if title in page.source]


def test_the_pages_of_several_runs_fold_what_is_of_one_run(root: Path) -> None:
    shown = section(page_of(root / "margin-0", root / "digits"), "What was queried")
    assert re.findall(r"<details><summary>([\w-]+)</summary>", shown) == ["margin-0", "digits"]


def test_a_report_needs_no_torch(root: Path) -> None:
    code = (
        "import sys; from ludus.show.report.page import write_report;"
        f"write_report([{str(root / 'margin-0')!r}]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


WINDOWS = [
    {"step": 4, "update": 0, "accuracy": 0.5, "state/ece": 0.25, "retrain": False},
    {"step": 8, "update": 0, "accuracy": 0.25, "state/ece": 0.5, "state/ece_baseline": 0.25, "retrain": True},
    {"step": 12, "update": 1, "accuracy": 0.75, "state/ece": 0.125, "retrain": False},
]  # fmt: skip


def stream_of(place: Path, *lines: object) -> Path:
    place.mkdir()
    (place / "stream.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def test_a_stream_is_drawn_with_its_statistic_its_baseline_and_its_retrainings(
    tmp_path: Path,
) -> None:
    page = page_of(stream_of(tmp_path / "edge", *WINDOWS))
    shown = section(page, "Drift of the stream")
    assert re.findall("<figcaption>(.*?)</figcaption>", shown) == ["accuracy", "ece"]
    assert 'measured <b title="the last value">0.125</b>' in shown
    assert 'baseline <b title="the last value">0.25</b>' in shown
    for chart in shown.split("<figure>")[1:]:
        moments = re.findall('<path class="moment"[^>]*><title>(.*?)</title>', chart)
        assert moments == ["step 8: retraining was asked for", "step 12: the model is update 1"]
    assert "<p>step 8: retraining was asked for</p>" in shown
    page = page_of(stream_of(tmp_path / "calm", WINDOWS[0]))
    assert "No retraining was asked for." in section(page, "Drift of the stream")


@pytest.mark.parametrize(
    "line", [7, {}, {"step": "4"}, {"step": -1, "accuracy": 1.0}, {"step": True}, {"step": 1e300}]
)
def test_a_stream_without_a_window_that_can_be_read_says_so(tmp_path: Path, line: object) -> None:
    page = page_of(stream_of(tmp_path / "edge", line))
    assert "No window was looked at yet." in section(page, "Drift of the stream")


def test_a_window_whose_numbers_are_none_leaves_a_gap_and_its_names_are_no_markup(
    tmp_path: Path,
) -> None:
    spoilt = {"step": 16, "accuracy": "many", f"state/{HOSTILE[0]}": 0.5, "update": HOSTILE[2]}
    page = page_of(stream_of(tmp_path / "edge", *WINDOWS, spoilt, {"step": 20, "state/x": "nan"}))
    shown = section(page, "Drift of the stream")
    assert "&lt;script&gt;alert(1)" in shown
    assert 'measured <b title="the last value">0.75</b>' in shown
    assert "No value of this metric is finite." in shown


def test_the_baseline_of_a_window_is_logged_beside_its_value() -> None:
    baseline = BaselineConfig(window=2, deviations=1.0, min_rise=0.0)

    class Given(ByBaseline):
        kind = "given"

        def value(self, window: Window) -> float:
            return float(window.log_probs)

    estimator = Given(baseline)
    found = [
        dict(estimator.measure(Window(torch.tensor(one), None, None), torch.Generator()).metrics)
        for one in (1.0, 3.0, 9.0)
    ]
    assert found == [
        {"state/given": 1.0},
        {"state/given": 3.0, "state/given_baseline": 1.0},
        {"state/given": 9.0, "state/given_baseline": 2.0},
    ]


def test_placeholders_are_not_shown_as_the_classes_of_the_pool(tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small_active(oracle={"kind": "function", "at_once": 50}))
    trainer.set_oracle(lambda inputs, rows: [row % 3 for row in rows])
    trainer.fit(root=tmp_path, name="asked")
    record = json.loads((tmp_path / "asked" / "asked" / "round-0000.json").read_text())
    assert record["pool_by_class"] is None
    assert sum(record["labelled_by_class"]) == record["num_asked"]


def test_a_run_goes_on_where_what_the_report_shows_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **more: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("ludus.active.asking.record_asked", fail)
    trained(tmp_path, "full")
    events = (tmp_path / "full" / "events.jsonl").read_text()
    assert "what round 0 asked for is not kept: no space left on device" in events
