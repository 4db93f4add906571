"""Of many long logs evenly spaced records of each kind are read, and every record of a rare kind."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from ludus.show.report import files, sampling, series
from ludus.show.report.files import Reading, read_run
from ludus.show.report.sampling import sampled, spread
from tests.show.test_long_logs import write_run
from tests.show.test_report import Page, write_report


def lines_of(path: Path, every: int) -> list[dict[str, Any]]:
    return [json.loads(line) for some in sampled(path, every) for line in some]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten records of a kind be enough, in blocks of a kilobyte."""
    monkeypatch.setattr(sampling, "_FEWEST_KEPT", 10)
    monkeypatch.setattr(sampling, "_BLOCK", 1 << 10)


def record(step: int) -> dict[str, Any]:
    found: dict[str, Any] = {"opt_steps": step, "train/loss": 1 / step}
    return found | ({"eval/return": step * 1.5} if step % 100 == 0 else {})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record(step)) + "\n" for step in range(1, 1003)))
    return path


@pytest.mark.usefixtures("few")
def test_frequent_records_are_thinned_and_rare_ones_are_all_read(log: Path) -> None:
    found = lines_of(log, 7)
    steps = [one["opt_steps"] for one in found]
    assert steps == sorted(set(steps))
    assert {one["opt_steps"] for one in found if "eval/return" in one} == {*range(100, 1001, 100)}
    assert 1002 / 7 < len(found) < 1002 / 7 + 10 + 70
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 7
    assert (steps[0], steps[-1]) == (1, 1002)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("torn", [b'{"opt_steps": 1003, "tr', b"\n\n", b"x" * 5000, b""])
def test_what_is_torn_or_too_long_is_no_record(log: Path, torn: bytes) -> None:
    with log.open("ab") as file:
        file.write(torn)
    lines = [line for some in sampled(log, 7) for line in some if line]
    assert json.loads(lines[-1])["opt_steps"] == 1002


def test_all_records_of_a_short_log_are_read(log: Path) -> None:
    assert len(lines_of(log, 7)) == 1002


def test_lines_at_even_distances_have_the_first_and_the_last(log: Path) -> None:
    (found,) = spread(log, 10)
    steps = [json.loads(line)["opt_steps"] for line in found]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1], len(steps)) == (1, 1002, 11)
    assert max(b - a for a, b in itertools.pairwise(steps)) < 120


def test_an_empty_log_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    assert list(sampled(tmp_path / "log", 3)) == []
    assert list(spread(tmp_path / "log", 3)) == [[]]


@pytest.mark.usefixtures("few")
def test_a_page_of_long_runs_reads_a_part_of_each_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONG", 8_000)
    monkeypatch.setattr(series, "_FEWEST_BYTES", 1)
    places = []
    for name in ("one", "two"):
        place = write_run(tmp_path / name, (record(step) for step in range(1, 1003)))
        times = ({"opt_steps": step, "seconds": step / 10} for step in range(1, 1003))
        (place / "timing.jsonl").write_text("".join(json.dumps(one) + "\n" for one in times))
        places.append(str(place))
    monkeypatch.setattr(files, "_MOST_READ", sum(map(_size, places)) // 5)
    reading = Reading.of(places)
    assert (reading.long, reading.every) == (4_000, 6)
    run = read_run(places[0], reading)
    assert run.metrics["eval/return"].values == [150.0 * n for n in range(1, 11)]
    assert run.metrics["train/loss"].counters[-1] == {"opt_steps": 1002}
    assert math.fsum(v for _, v in run.metrics["train/loss"].means) > 0
    assert run.last_counters == {"opt_steps": 1002}
    assert len(run.clocks["seconds"].values) <= 1002
    page = Page(write_report(places, tmp_path / "page.html"))
    assert "metrics.jsonl is long: of its frequent records about one in 6 was read" in page.text
    # A page of one run reads all of it.
    assert Reading.of(places[:1]).every == 1


def _size(place: str) -> int:
    return (Path(place) / "metrics.jsonl").stat().st_size


@pytest.mark.usefixtures("few")
def test_damaged_lines_of_a_sampled_log_are_noted(tmp_path: Path) -> None:
    place = write_run(tmp_path / "run", (record(step) for step in range(1, 1003)))
    with (place / "metrics.jsonl").open("ab") as file:
        file.write(b"[1]\nnonsense\n")
    run = read_run(str(place), Reading(long=1, every=5))
    assert "metrics.jsonl has 2 damaged lines, left out here." in run.notes
