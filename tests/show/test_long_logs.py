"""A log of any length is reported in bounded memory, thinned while it is read; what shows is not lost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ludus.show.report import files, series
from ludus.show.report.curves import metric_charts, page_curves
from ludus.show.report.files import ReportedRun, read_run
from ludus.show.report.groups import grouped
from ludus.store.local import LocalStorage

STRETCHES = 10


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a log of some kilobytes be a long one."""
    monkeypatch.setattr(series, "LONG", 4000)
    monkeypatch.setattr(files, "LONG", 4000)
    monkeypatch.setattr(series, "_NUM_STRETCHES", STRETCHES)
    monkeypatch.setattr(series, "_FEWEST_BYTES", 1)


def write_run(place: Path, lines: Iterable[dict[str, Any]]) -> Path:
    place.mkdir()
    note = {"format": 1, "kind": "supervised", "name": place.name}
    (place / "run.json").write_text(json.dumps(note))
    (place / "config.yaml").write_text("kind: supervised\n")
    (place / "events.jsonl").write_text('{"time": 1.0, "event": "started", "pid": 1}\n')
    (place / "timing.jsonl").write_text("")
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def noisy(count: int) -> list[dict[str, Any]]:
    """Return a loss at every step, with a spike, two values that are not finite, and rare validations."""
    lines: list[dict[str, Any]] = []
    for step in range(1, count + 1):
        loss: Any = 1.0 + (step * 37 % 101) / 100
        loss = {count // 3: 77.0, count // 2: "nan", count // 2 + 1: "inf"}.get(step, loss)
        lines.append({"opt_steps": step, "train/loss": loss})
        if step % 100 == 0:
            lines.append({"opt_steps": step, "epoch": step // 100, "validation/loss": 1 / step})
    return lines


@pytest.mark.usefixtures("short")
def test_a_long_log_is_thinned_while_it_is_read_and_its_extremes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write_run(tmp_path / "run", noisy(1000))
    whole = LocalStorage.read

    def read(self: LocalStorage, name: str, **more: Any) -> bytes:
        assert name != "metrics.jsonl", "the log is read whole"
        return whole(self, name, **more)

    monkeypatch.setattr(LocalStorage, "read", read)
    run = read_run(str(place))
    loss = run.metrics["train/loss"]
    # The lowest and highest of each stretch, a gap, and the two ends.
    assert 2 * STRETCHES <= len(loss.values) <= 2 * (STRETCHES + 1) + 3
    assert max(value for value in loss.values if math.isfinite(value)) == 77.0
    assert min(value for value in loss.values if math.isfinite(value)) == 1.0
    assert loss.counters[0] == {"opt_steps": 1}
    assert (loss.counters[-1], loss.values[-1]) == ({"opt_steps": 1000}, 1.0 + 37_000 % 101 / 100)
    assert sum(not math.isfinite(v) for v in loss.values) + sum(loss.left_out) == 2
    assert len(run.metrics["validation/loss"].values) == 10
    assert sum(mean for _, mean in loss.means) / len(loss.means) == pytest.approx(1.57, abs=0.05)
    assert run.last_counters == {"opt_steps": 1000, "epoch": 10}
    assert any(
        "metrics.jsonl has 1,010 records: its curves show the lowest" in n for n in run.notes
    )
    assert "2 not finite" in metric_charts(page_curves([run], grouped([run])))


@pytest.mark.usefixtures("short")
def test_no_more_of_a_long_log_is_held_than_one_stretch_of_it(tmp_path: Path) -> None:
    storage = LocalStorage(write_run(tmp_path / "run", noisy(1000)))
    sizes = [len(some) for some in series.stretches(storage, "metrics.jsonl", [])]
    assert sum(sizes) == 1010
    assert max(sizes) < 2 * 1010 / STRETCHES


def test_a_log_that_is_not_long_keeps_every_value(tmp_path: Path) -> None:
    run = read_run(str(write_run(tmp_path / "run", noisy(1000))))
    loss = run.metrics["train/loss"]
    assert len(loss.values) == 1000
    assert (loss.means, loss.left_out) == ([], [])
    assert [at["opt_steps"] for at in loss.counters] == list(range(1, 1001))
    assert run.notes == ["timing.jsonl is empty."]


@pytest.mark.usefixtures("short")
def test_damaged_lines_and_numbers_of_any_kind_are_no_matter_in_a_long_log(tmp_path: Path) -> None:
    huge = 10**400
    lines = [{"opt_steps": step, "a": [1e308, huge, -huge, True, "x", None][step % 6]}
             for step in range(1, 601)]  # fmt: skip
    place = write_run(tmp_path / "run", lines)
    with (place / "metrics.jsonl").open("ab") as file:
        file.write(b'{"opt_steps": 1.5, "a": 2}\nnot json\n[1, 2]\n\xff\n\n{"a": 3, "torn')
    run = read_run(str(place))
    found = run.metrics["a"]
    finite = [value for value in found.values if math.isfinite(value)]
    assert {*finite} == {1e308, 2.0}
    assert sum(not math.isfinite(v) for v in found.values) + sum(found.left_out) == 200
    # What cannot be a count is a number like any other, as it is in a short log.
    assert run.metrics["opt_steps"].values == [1.5]
    assert "metrics.jsonl has 3 damaged lines, left out here." in run.notes
    assert all(math.isfinite(mean) for _, mean in found.means)


def test_a_long_log_and_a_short_one_are_reported_by_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = noisy(300)
    lines[5]["text"] = {"told": "hello"}
    place = str(write_run(tmp_path / "run", lines))
    short = read_run(place)
    monkeypatch.setattr(files, "LONG", 1)
    monkeypatch.setattr(series, "LONG", 1)
    long = read_run(place)
    assert _facts(long) == _facts(short)
    assert list(long.metrics) == list(short.metrics)


def _facts(run: ReportedRun) -> tuple[object, ...]:
    ends = {name: (found.values[0], found.values[-1]) for name, found in run.metrics.items()}
    return run.texts, run.last_counters, ends, run.counters, run.has_scores
