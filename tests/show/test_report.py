"""A report tells everything a run recorded, whatever the run recorded, and runs no script but its own."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import RunError
from ludus.show.report.page import write_report
from ludus.show.report.page_data import SCRIPT

HOSTILE = [
    "<script>alert(1)</script>",
    '"onerror=alert(1) x="',
    "</script>",
    "</title><script>alert(2)</script>",
    "'><img src=x onerror=alert(3)>",
    "</svg></style></pre><iframe src=javascript:alert(4)>",
]
BEST = {
    "metric": "validation/epoch_loss",
    "mode": "min",
    "score": 0.125,
    "model": "models/best-00000200",
    "counters": {"opt_steps": 200, "epoch": 2},
}
ENDING = {"counters": {"opt_steps": 300, "epoch": 3}, "best": BEST, "exact": True}
PLAIN_TAGS = """html head meta link title style body main p div h1 h2 h3 span b br code pre ul li
    footer table thead tbody tr th td figure figcaption details summary
    svg path text rect circle g"""
ALLOWED_TAGS = set(PLAIN_TAGS.split())
SCRIPTED_TAGS = ALLOWED_TAGS | {"script", "form", "label", "select", "option", "input", "output"}
"""Tags of a page of several runs, whose one script draws the curves again."""


class Page(HTMLParser):
    """What a browser would make of a page: its tags, its attributes and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._is_script = False
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._is_script = tag == "script"
        if self._is_script:
            self.scripts.append("")
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self._is_script &= tag != "script"

    def handle_data(self, data: str) -> None:
        if self._is_script:
            self.scripts[-1] += data
        else:
            self.text += data

    def paths(self, of: str) -> list[str]:
        """The drawn paths of one class."""
        pieces = self.source.split(f'<path class="line {of}"')[1:]
        return [piece.split(' d="')[1].split('"')[0] for piece in pieces]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_run(
    directory: Path,
    *,
    metrics: list[dict[str, Any]] | None = None,
    name: str = "digits",
    config: str = "kind: supervised\nmax_epochs: 3\n",
    ending: dict[str, Any] | None = None,
) -> Path:
    directory.mkdir(parents=True)
    about = {
        "format": 1,
        "kind": "supervised",
        "name": name,
        "seed": 0,
        "config_hash": "c0ffee",
        "created": "2026-11-15T11:00:00+00:00",
        "versions": {"torch": "2.13.0+cpu"},
        "host": "node-7",
        "machine": {"cpu": "AMD EPYC", "device": "cpu"},
        "git": {"commit": "abc123", "dirty": True},
    }
    (directory / "run.json").write_text(json.dumps(about))
    (directory / "config.yaml").write_text(config)
    epochs = [
        {
            "opt_steps": 100 * n,
            "epoch": n,
            "train/epoch_loss": 1 / n,
            "validation/epoch_loss": 0.125 + abs(n - 2) / 4,
        }
        for n in (1, 2, 3)
    ]
    write_lines(directory / "metrics.jsonl", epochs if metrics is None else metrics)
    timing = {"opt_steps": 100, "seconds": 9.0, "opt_steps_per_second": 2100.0, "host_ms": 0.5}
    write_lines(directory / "timing.jsonl", [timing])
    end = {"time": 1794740500.0, "event": "finished", **ENDING, **(ending or {})}
    write_lines(
        directory / "events.jsonl", [{"time": 1794740400.0, "event": "started", "pid": 1}, end]
    )
    return directory


def hostile_run(directory: Path) -> Path:
    """A run in which everything that can be named is named by an enemy."""
    scalars = {f"{word}/{word}": 0.5 for word in HOSTILE} | dict.fromkeys(HOSTILE, 1.0)
    records = {
        "text": {word: word for word in HOSTILE},
        "histogram": {word: {"edges": [0, 1, 2], "counts": [3, 4]} for word in HOSTILE},
    }
    metrics: list[dict[str, Any]] = [{"opt_steps": n, **scalars, **records} for n in (1, 2)]
    words = " ".join(HOSTILE)
    make_run(
        directory,
        metrics=metrics,
        name=words,
        config=words,
        ending={
            "event": "failed",
            "reason": words,
            "exact": False,
            "inexact_because": HOSTILE,
            "best": {"metric": HOSTILE[0], "mode": words, "score": 0.5, "model": words},
            "counters": {"opt_steps": words},
            words: {words: words},
        },
    )
    about = json.loads((directory / "run.json").read_text())
    spoilt = dict.fromkeys(("kind", "seed", "host", "created", "config_hash", "script"), words)
    about |= {**spoilt, "versions": {words: words}, "machine": {words: words}}
    about["git"] = {"commit": words, "dirty": True}
    (directory / "run.json").write_text(json.dumps(about))
    write_lines(directory / "timing.jsonl", [{"opt_steps": 1, f"{words}_per_second": 1.0}])
    return directory


def test_a_page_tells_what_a_run_was_and_how_it_ended(tmp_path: Path) -> None:
    out = write_report([make_run(tmp_path / "digits")])
    page = Page(out)
    assert out == tmp_path / "digits" / "report.html"
    assert list(out.parent.glob("*.tmp-*")) == []
    for told in (
        "The run came to its end.",
        "0.125",
        "lowest validation/epoch_loss",
        "1 min 40 s",
        "Exact:",
        "models/best-00000200",
        "after 200 optimiser steps, 2 epochs",
        "2.13.0+cpu",
        "abc123 with uncommitted changes",
        "max_epochs: 3",
        "2026-11-15 11:00:00 UTC",
        "opt_steps_per_second",
        "host_ms",
    ):
        assert told in page.text, told
    assert "seconds" not in page.text.replace("per_second", "").split()


def test_train_and_validation_share_a_chart_on_which_the_best_point_is_marked(
    tmp_path: Path,
) -> None:
    page = Page(write_report([make_run(tmp_path / "digits")]))
    assert page.source.count("<figcaption>epoch_loss</figcaption>") == 1
    assert len(page.paths("c0 d0")) >= 1
    validation = page.paths("c1 d0")[0]
    mark = page.source.split('<circle class="best c1" cx="')[1]
    x, y = mark.split('"')[0], mark.split('cy="')[1].split('"')[0]
    assert f"{x} {y}" == validation.lstrip("M").split("L")[1]
    assert "best of validation: 0.125 at 200" in page.text
    assert "best 0.125" in page.text


def test_metrics_that_end_in_numbers_share_a_chart(tmp_path: Path) -> None:
    rows = [{"opt_steps": 1, "pool/share/0": 0.25, "pool/share/1": 0.75, "2": 1.0}]
    page = Page(write_report([make_run(tmp_path / "run", metrics=rows)]))
    assert page.source.count("<figcaption>share</figcaption>") == 1
    assert '0 <b title="the last value">0.25</b>' in page.source
    assert page.source.count("<figcaption>2</figcaption>") == 1


def test_hostile_words_are_shown_and_are_never_markup(tmp_path: Path) -> None:
    one, two = hostile_run(tmp_path / "one"), make_run(tmp_path / "two")
    for page, tags in (
        (Page(write_report([one])), ALLOWED_TAGS),
        (Page(write_report([one, two])), SCRIPTED_TAGS),
    ):
        assert page.tags <= tags, page.tags - tags
        assert [*page.scripts[1:]] == [SCRIPT] * ("script" in tags)
        assert page.source.lower().count("<script") == len(page.scripts)
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert {value for name, value in page.attributes if name in ("href", "src")} == {"data:,"}
        for word in HOSTILE:
            assert word not in page.source or word == "</script>"
            assert page.text.count(word) > 5
        assert page.source.lower().count("</script") == len(page.scripts)


def test_the_page_forbids_scripts_before_anything_else_is_read(tmp_path: Path) -> None:
    source = Page(write_report([hostile_run(tmp_path / "one")])).source
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    tag = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    assert 0 < source.find(tag) < source.find("<title>") < source.find("<style>")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_real_browser_makes_no_script_element_of_hostile_words(tmp_path: Path) -> None:
    out = write_report([hostile_run(tmp_path / "run")])
    options = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    options += " --disable-background-networking --disable-component-update --dump-dom"
    dom = subprocess.run(
        ["chromium", *options.split(), f"--user-data-dir={tmp_path / 'browser'}", out.as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    (tmp_path / "dom.html").write_text(dom)
    page = Page(tmp_path / "dom.html")
    assert page.tags <= ALLOWED_TAGS
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE[0] in page.text


@pytest.mark.parametrize("is_empty", [True, False])
def test_files_that_are_missing_or_empty_are_told_and_are_no_error(
    tmp_path: Path, is_empty: bool
) -> None:
    run = make_run(tmp_path / "run")
    for name in ("config.yaml", "metrics.jsonl", "timing.jsonl", "events.jsonl"):
        (run / name).write_text("") if is_empty else (run / name).unlink()
    page = Page(write_report([run]))
    for name in ("config.yaml", "metrics.jsonl", "timing.jsonl", "events.jsonl"):
        assert f"{name} is " in page.text
    assert "No metric was recorded." in page.text
    assert "No event was recorded." in page.text
    assert "The run is still going, or was killed" in page.text


def test_a_directory_without_a_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run directory.*ludus runs"):
        write_report([tmp_path])
    with pytest.raises(RunError, match="at least one run"):
        write_report([])
    assert list(tmp_path.iterdir()) == []


def test_a_torn_last_line_is_ignored_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole + '{"opt_steps": 400, "train/epo')
    assert "damaged" not in Page(write_report([run])).text
    (run / "metrics.jsonl").write_text("\0\0\0\n[1]\n" + whole)
    page = Page(write_report([run]))
    assert "metrics.jsonl has 2 damaged lines, left out here." in page.text
    assert "epoch_loss" in page.text


def test_a_value_that_is_not_finite_is_a_gap_in_the_curve(tmp_path: Path) -> None:
    values = [1.0, 2.0, "nan", 3.0, 1.0, "inf", "-inf", 10**400, 2.0]
    metrics = [{"opt_steps": n, "train/loss": value} for n, value in enumerate(values)]
    page = Page(write_report([make_run(tmp_path / "run", metrics=metrics)]))
    path = page.paths("c0 d0")[0]
    assert path.count("M") == 2
    (dot,) = page.paths("c0 dot")
    assert dot.count("M") == 1
    assert dot.endswith("h0")
    assert "4 not finite" in page.text
    assert "nan" not in path
    assert "inf" not in path
    assert "train: nan" in page.text


def test_a_metric_that_is_never_finite_says_so(tmp_path: Path) -> None:
    metrics = [{"opt_steps": n, "train/loss": "nan"} for n in range(3)]
    page = Page(write_report([make_run(tmp_path / "run", metrics=metrics)]))
    assert "No value of this metric is finite." in page.text


def test_thousands_of_points_make_a_page_below_a_megabyte(tmp_path: Path) -> None:
    def line(n: int) -> dict[str, Any]:
        return {"opt_steps": n, **{f"m{k}": math.sin(n * (k + 1) / 70) for k in range(30)}}

    metrics = [line(n) for n in range(4_000)]
    metrics[1234]["m0"] = 50.0
    page = Page(write_report([make_run(tmp_path / "run", metrics=metrics)]))
    assert len(page.source) < 1_000_000
    assert page.source.count("<figcaption>m") == 30
    assert ">50</text>" in page.source


def test_two_runs_are_overlaid_and_told_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "runs" / name, name=name) for name in ("first", "second")]
    write_lines(runs[1] / "events.jsonl", [{"time": 1.0, "event": "started"}])
    out = write_report(runs)
    page = Page(out)
    assert out == tmp_path / "runs" / "report.html"
    assert page.source.count("<figcaption>epoch_loss</figcaption>") == 1
    for label in ("first · train", "first · validation", "second · train", "second · validation"):
        assert label in page.text
    for style in ("c0 d0", "c0 d1", "c1 d0", "c1 d1"):
        assert page.paths(style), style
    assert "not ended" in page.text
    assert page.text.count("max_epochs: 3") == 2


def test_a_report_is_told_by_the_path_that_its_run_was_given_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        make_run(tmp_path / "runs" / name, name=name)
    monkeypatch.chdir(tmp_path)
    one, two = Path("runs/first"), Path("runs/second")
    assert str(write_report([one])) == "runs/first/report.html"
    assert str(write_report([one, two, one])) == "runs/report.html"
    monkeypatch.chdir(tmp_path / "runs" / "first")
    assert str(write_report([Path(".")])) == "report.html"
    assert write_report([Path("."), tmp_path / two]) == (tmp_path / "runs" / "report.html")


def test_runs_of_one_name_are_called_by_their_directories(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / place / "digits") for place in ("a", "b")]
    page = Page(write_report(runs, tmp_path / "both.html"))
    assert str(tmp_path / "a" / "digits") in page.text
    assert str(tmp_path / "b" / "digits") in page.text


def test_environment_steps_are_the_axis_where_an_environment_is_stepped(tmp_path: Path) -> None:
    metrics = [{"env_steps": 2048 * n, "opt_steps": 4 * n, "return": n} for n in (1, 2, 3)]
    rl = Page(write_report([make_run(tmp_path / "rl", metrics=metrics)]))
    assert "environment steps 2,048" in rl.text
    supervised = Page(write_report([make_run(tmp_path / "supervised")]))
    assert "environment steps" not in supervised.text
    assert "optimiser steps 100" in supervised.text


def test_a_resumed_run_has_not_ended_and_its_pause_is_not_wall_time(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    events = [
        {"time": 1000.0, "event": "started"},
        {"time": 1060.0, "event": "interrupted", "reason": "SIGTERM", **ENDING},
        {"time": 9000.0, "event": "resumed"},
        {"time": 9005.0, "event": "checkpoint_failed", "reason": "no space left"},
    ]
    write_lines(run / "events.jsonl", events[:2])
    page = Page(write_report([run]))
    assert "interrupted: SIGTERM" in page.text
    assert "1 min 0 s" in page.text
    write_lines(run / "events.jsonl", events)
    page = Page(write_report([run]))
    assert "The run is still going, or was killed" in page.text
    assert "1 min 5 s" in page.text
    assert "reason: no space left" in page.text


def test_a_run_that_is_not_exact_says_why(tmp_path: Path) -> None:
    ending = {"exact": "no", "inexact_because": ["the env cannot be restored"]}
    page = Page(write_report([make_run(tmp_path / "run", ending=ending)]))
    assert "Exact: no. the env cannot be restored." in page.text
    assert "Exact: expected" not in page.text


@pytest.mark.parametrize(
    ("told", "word"),
    [("proved", "proved"), ("expected", "expected"), (True, "expected"), (False, "no")],
)
def test_a_report_says_in_one_word_how_exact_a_run_is(
    tmp_path: Path, told: object, word: str
) -> None:
    runs = [make_run(tmp_path / name, ending={"exact": told}) for name in ("one", "two")]
    assert f"Exact: {word}." in Page(write_report(runs[:1])).text
    assert Page(write_report(runs, tmp_path / "both.html")).text.count(f"Exact: {word}.") == 2


def test_the_last_text_and_histogram_of_each_name_are_shown(tmp_path: Path) -> None:
    def line(n: int) -> dict[str, Any]:
        histogram = {"edges": [0.0, 0.5, 1.0], "counts": [n, 7]}
        return {"opt_steps": n, "text": {"reply": f"answer {n}"}, "histogram": {"w": histogram}}

    broken = {"opt_steps": 9, "histogram": {"w": {"edges": [1, "x"], "counts": [1]}, "v": 3}}
    page = Page(write_report([make_run(tmp_path / "run", metrics=[line(1), line(2), broken])]))
    assert "answer 2" in page.text
    assert "answer 1" not in page.text
    assert "0 to 0.5: 2" in page.text
    assert "0.5 to 1: 7" in page.text


def test_half_a_surrogate_pair_in_a_text_does_not_stop_the_report(tmp_path: Path) -> None:
    metrics = [{"opt_steps": 1, "text": {"reply": "\ud800 \0 done"}}]
    assert " done" in Page(write_report([make_run(tmp_path / "run", metrics=metrics)])).text


def events_at(*told: tuple[float, str, int]) -> list[dict[str, Any]]:
    return [{"time": time, "event": event, "pid": pid} for time, event, pid in told]


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        # The pause, an hour, comes before what the resume says first.
        ([(0, "started", 1), (10, "finished", 1), (3610, "length_changed", 2), (3611, "resumed", 2),
          (3631, "finished", 2)], "30.0 s"),
        # A run that was killed says nothing of its end; the process that follows is another.
        ([(0, "started", 1), (10, "first_checkpoint", 1), (3610, "checkpoint_damaged", 2),
          (3611, "resumed", 2), (3613, "interrupted", 2)], "12.0 s"),
        # Two calls of fit in one process.
        ([(0, "started", 1), (10, "interrupted", 1), (3610, "log_lost", 1), (3611, "resumed", 1),
          (3615, "finished", 1)], "14.0 s"),
    ],
)  # fmt: skip
def test_the_wall_time_does_not_count_a_pause(
    tmp_path: Path, told: list[tuple[float, str, int]], seconds: str
) -> None:
    run = make_run(tmp_path / "run")
    write_lines(run / "events.jsonl", events_at(*told))
    page = write_report([run]).read_text()
    assert f"<b>{seconds}</b><span>wall time</span>" in page


def test_a_report_tells_how_to_resume_a_run_whose_name_has_a_space(tmp_path: Path) -> None:
    run = make_run(tmp_path / "my run", ending={"event": "interrupted"})
    assert f"ludus resume '{run}'" in Page(write_report([run])).text


def several_wide_runs(root: Path) -> list[Path]:
    """Runs whose names, metrics and events are too wide for a narrow page in one line."""
    counters = {
        "env_steps": 1_234_567_890_123,
        "opt_steps": 104_857_600,
        "epoch": 4_096,
        "examples": 7,
    }
    runs = [
        make_run(
            root / f"run-{n}",
            name=f"a-rather-long-name-of-a-run-{n}",
            ending={"counters": counters},
        )
        for n in (1, 2)
    ]
    path = "/usr/lib/python3/dist-packages/a/very/long/path/without/any/space/in/it/file.py"
    for run in runs:
        told = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        told.insert(1, {"time": 1794740450.0, "event": "evaluation_failed", "reason": path})
        write_lines(run / "events.jsonl", told)
    return runs


def test_a_narrow_page_can_show_each_figure_of_a_comparison_with_its_title(tmp_path: Path) -> None:
    page = write_report(several_wide_runs(tmp_path), tmp_path / "page.html").read_text()
    body = page.split('<table class="runs">')[1].split("</table>")[0]
    titles = [piece.split("<")[0] for piece in body.split("<thead>")[1].split("<th>")[1:]][:-2]
    for row in body.split("<tbody>")[1].split("<tr>")[1:]:
        named = [piece.split('"')[0] for piece in row.split('<td data-title="')[1:]]
        assert named == titles[1:]
        assert row.count("<td") == len(named)


MEASURE = """<body><iframe src="{page}" style="width:390px;height:9000px"></iframe><script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument;
  for (const one of page.querySelectorAll("details")) one.open = true;
  const wide = [...page.querySelectorAll("html,.panel,figure,.card")]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.className || one.tagName);
  const slim = [...page.querySelectorAll("td.time, td.time ~ td")]
    .filter(one => one.textContent && one.getBoundingClientRect().width < 200).length;
  const broken = [...page.querySelectorAll(".card b")]
    .filter(one => one.getBoundingClientRect().height > 31 || one.scrollWidth > one.clientWidth).length;
  document.body.textContent = "measured:" + JSON.stringify([wide, slim, broken]) + ";";
}};</script></body>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("num_runs", [1, 2])
def test_on_a_phone_nothing_is_wider_than_the_page(tmp_path: Path, num_runs: int) -> None:
    page = write_report(several_wide_runs(tmp_path)[:num_runs], tmp_path / "page.html")
    (tmp_path / "frame.html").write_text(MEASURE.format(page=page.name))
    options = "--headless --no-sandbox --disable-gpu --disable-web-security --dump-dom"
    options += " --allow-file-access-from-files --virtual-time-budget=2000"
    found = subprocess.run(
        ["chromium", *options.split(), f"--user-data-dir={tmp_path / 'browser'}",
         (tmp_path / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip
    assert "measured:[[],0,0];" in found
