"""A page of several runs has a curve and a band for each group; its one script draws them in other ways."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.show.report.band import Band
from ludus.show.report.page import write_report
from ludus.show.report.page_data import SCRIPT, safe_json
from tests.show.test_report import HOSTILE, SCRIPTED_TAGS, Page, make_run, write_lines

HAS_CHROMIUM = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)


def a_run(root: Path, folder: str, rate: float, seed: int, **more: Any) -> Path:
    """Write a run whose return grows with its rate and its seed, and which takes a second a step."""
    steps = range(1, 11 + seed)
    rows = [
        {"env_steps": 100 * n, "opt_steps": n, "eval/return": rate * n + seed * n % 4}
        for n in steps
    ]
    best = {
        "metric": "eval/return",
        "mode": "max",
        "score": rate * 10 + seed,
        "counters": {"opt_steps": 9},
    }
    run = make_run(root / folder, metrics=rows, name=folder, ending={"best": best})
    times = [
        {"env_steps": 100 * n, "opt_steps": n, "seconds": n * 1.0, "cpu_seconds": n / 2, "fps": 9.0}
        for n in steps
    ]
    write_lines(run / "timing.jsonl", times)
    note = json.loads((run / "run.json").read_text())
    config = {"kind": "ppo", "seed": seed, "optimizer": {"learning_rate": rate}}
    (run / "run.json").write_text(json.dumps({**note, "seed": seed, "config": config, **more}))
    return run


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        a_run(tmp_path, f"{name}-{seed}", rate, seed)
        for name, rate in (("slow", 1.0), ("fast", 3.0))
        for seed in range(3)
    ]


def data_of(page: Page) -> Any:
    """Return the data that the script of a page reads."""
    return json.loads(page.scripts[0])


def test_what_differs_stands_at_the_top_and_each_group_is_one_curve(runs: list[Path]) -> None:
    page = Page(write_report(runs))
    assert "6 runs in 2 groups" in page.text
    differing = page.source.split("<h2>What differs</h2>")[1].split("<h2>")[0]
    cells = re.findall(r"<t[hd]>(.*?)</t[hd]>", differing)
    assert cells == ["key", "slow", "fast", "optimizer.learning_rate", "1.0", "3.0"]
    figure = page.source.split("<figcaption>return</figcaption>")[1].split("</figure>")[0]
    assert figure.count('class="range') == 2
    assert figure.count(' run" d=') == 6
    # At the last step of all, 10: 10, 12 and 10 for the three seeds, whose standard error is 2/3.
    assert "slow (3 runs) <b>10.667 ± 0.67</b>" in figure
    assert "plus and minus one standard error of the mean" in page.text


def test_the_table_of_groups_has_the_mean_of_the_best_with_its_interval(runs: list[Path]) -> None:
    source = Page(write_report(runs)).source
    row = source.split("<h2>Groups</h2>")[1].split("<tr>")[2]
    # Of 10, 11 and 12: the mean 11, and Student's t of 4.3027 times 1 / sqrt(3).
    cells = re.findall(r'data-title="(.*?)">(.*?)<', row)
    assert dict(cells) == {
        "runs": "3", "seeds": "0, 1, 2", "metric": "eval/return", "mean of the best": "11",
        "95% interval": "8.5159 to 13.484",
    }  # fmt: skip


def test_a_run_that_repeats_another_is_drawn_but_counts_neither_in_mean_nor_interval(
    runs: list[Path], tmp_path: Path
) -> None:
    whole = Page(write_report(runs))
    again = a_run(tmp_path, "slow-9", 1.0, 2)
    page = Page(write_report([*runs, again]))
    table, figure = (
        [one.source.split(begin)[1].split(end)[0] for one in (whole, page)]
        for begin, end in (("<h2>Groups</h2>", "</table>"), ("<figcaption>return", "<svg"))
    )
    assert table[0] == table[1]
    assert figure[0] == figure[1]
    assert "slow-9 has the config and the seed of slow-2, so only slow-2 counts." in page.text
    (chart, *_) = data_of(page)["charts"]
    assert [run["name"] for run in chart["lines"][0]["runs"] if not run["counts"]] == ["slow-9"]


@pytest.mark.parametrize(
    ("band", "told", "num_areas"),
    [
        (Band.BOOTSTRAP, "95% bootstrap interval", 2),
        (Band.MINMAX, "from the lowest run to the highest", 2),
        (Band.NONE, "faint lines: single runs.", 0),
    ],
)
def test_the_band_is_the_one_that_was_asked_for(
    runs: list[Path], band: Band, told: str, num_areas: int
) -> None:
    page = Page(write_report(runs, band=band))
    assert told in page.text
    figure = page.source.split("<figcaption>return</figcaption>")[1].split("</figure>")[0]
    assert figure.count('class="range') == num_areas
    assert f'value="{band.value}" selected' in page.source
    assert data_of(page)["band"] == band.value


def test_the_policy_allows_the_one_script_by_its_hash_and_no_other(runs: list[Path]) -> None:
    page = Page(write_report(runs))
    policy = page.source.split('Policy" content="')[1].split('"')[0]
    data, script = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy.split("script-src")[1]
    assert script == SCRIPT
    assert script.isascii()
    json.loads(data)
    for banned in ("innerHTML", "eval(", "Function(", "fetch", "import", "http:", "https:"):
        assert banned not in script.replace("http://www.w3.org/2000/svg", ""), banned
    assert "its one script" in page.text.split("Written by ludus")[1]


def test_a_page_of_one_run_has_no_script(runs: list[Path]) -> None:
    page = Page(write_report(runs[:1]))
    assert page.scripts == []
    assert "script-src" not in page.source
    assert "This page is whole in itself and runs no script." in page.text


def test_a_page_of_either_kind_may_be_written_again(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    for some in (runs, runs[:1], runs[:2]):
        assert write_report(some, out) == out


def test_data_cannot_end_the_element_it_stands_in(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path, f"run-{n}", 1.0, n, name=HOSTILE[n], group=HOSTILE[2]) for n in range(3)
    ]
    rows = [{"opt_steps": n, **{f"eval/{word}": n * 1.0 for word in HOSTILE}} for n in (1, 2)]
    for run in runs:
        write_lines(run / "metrics.jsonl", rows)
    page = Page(write_report(runs))
    assert page.tags <= SCRIPTED_TAGS
    assert page.scripts[1:] == [SCRIPT]
    assert "<" not in page.scripts[0]
    assert "&" not in page.scripts[0]
    names = {
        run["name"]
        for chart in data_of(page)["charts"]
        for line in chart["lines"]
        for run in line["runs"]
    }
    assert names == {*HOSTILE[:3]}
    text = "</script><!--<script>&amp;\u2028\ud800"
    assert json.loads(safe_json([text])) == [text]
    assert not {*"<>&\u2028"} & {*safe_json([text])}


def test_the_script_is_given_every_axis_that_the_logs_have(runs: list[Path]) -> None:
    data = data_of(Page(write_report(runs)))
    assert dict(data["axes"]) == {
        "env_steps": "environment steps", "opt_steps": "optimiser steps",
        "seconds": "wall clock", "cpu_seconds": "CPU time",
    }  # fmt: skip
    first = data["charts"][0]["lines"][0]["runs"][0]
    places = data["x"][first["x"]["seconds"]]
    assert places == {"first": 1, "step": 1, "count": 10}
    # A run without times has no wall clock, so a chart with it keeps its own axis.
    (runs[0] / "timing.jsonl").write_text("")
    lines = data_of(Page(write_report(runs)))["charts"][0]["lines"]
    assert ["seconds" in run["x"] for line in lines for run in line["runs"]] == [False] + 5 * [True]


def test_many_runs_make_a_page_of_a_few_megabytes(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    names = [f"train/m{k}" for k in range(10)]
    runs = []
    for n in range(20):
        rows = [
            {"opt_steps": step, **dict(zip(names, draw.normal(size=10).tolist(), strict=True))}
            for step in range(1, 400)
        ]
        runs.append(a_run(tmp_path, f"run-{n}", 1.0 + n // 5, n % 5))
        write_lines(runs[-1] / "metrics.jsonl", rows)
    assert write_report(runs, tmp_path / "page.html").stat().st_size < 3_000_000


FRAME = """<body><iframe src="page.html" style="width:1200px;height:9000px"></iframe><script>
onload = () => {{
  const frame = document.querySelector("iframe").contentWindow, page = frame.document;
  const choose = chosen => {{
    for (const [name, value] of Object.entries(chosen)) page.getElementById(name).value = value;
    page.getElementById("choices").dispatchEvent(new frame.Event("input"));
  }};
  const figure = page.querySelector("figure[data-chart]"), told = [];
  const paths = kind => [...figure.querySelectorAll(kind)].map(one => one.getAttribute("d"));
  const tell = () => told.push({{
    lines: paths("svg[role] > .line:not(.run)"), areas: paths(".range"), runs: paths(".run").length,
    axis: figure.querySelector(".name").textContent,
    legend: [...figure.querySelectorAll(".legend b")].map(one => one.textContent)}});
  {steps}
  document.body.textContent = "measured:" + btoa(unescape(encodeURIComponent(JSON.stringify(told)))) + ";";
}};</script></body>"""


def in_a_browser(page: Path, steps: str) -> Any:
    """Run these steps on a page in a frame of a real browser, and return what they told."""
    (page.parent / "frame.html").write_text(FRAME.format(steps=steps))
    options = (
        "--headless --no-sandbox --disable-gpu --disable-web-security --dump-dom --no-first-run"
    )
    options += " --allow-file-access-from-files --virtual-time-budget=2000 --disable-sync"
    options += " --disable-background-networking --disable-component-update"
    found = subprocess.run(
        ["chromium", *options.split(), f"--user-data-dir={page.parent / 'browser'}",
         (page.parent / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip
    return json.loads(base64.b64decode(found.split("measured:")[1].split(";")[0]))


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", path)]


@HAS_CHROMIUM
@pytest.mark.parametrize("band", [Band.STDERR, Band.MINMAX, Band.NONE])
def test_the_script_draws_what_the_page_shows_without_it(runs: list[Path], band: Band) -> None:
    again = a_run(runs[0].parent, "slow-9", 1.0, 2)
    path = write_report([*runs, again], runs[0].parent / "page.html", band=band)
    (told,) = in_a_browser(path, "tell();")
    figure = path.read_text().split("<figcaption>return</figcaption>")[1].split("</figure>")[0]
    lines = [
        piece.split('"')[0]
        for piece in re.findall(r'<path class="line c\d d\d" d="([^>]*)/>', figure.split("<ul")[0])
    ]
    areas = re.findall(r'<path class="range c\d" d="([^"]*)"', figure)
    assert len(lines) == len(told["lines"]) == 2
    assert len(areas) == len(told["areas"]) == (0 if band is Band.NONE else 2)
    for ours, theirs in zip([*lines, *areas], [*told["lines"], *told["areas"]], strict=True):
        assert numbers(theirs) == pytest.approx(numbers(ours), abs=0.11)
    assert told["legend"] == re.findall(r"<b>(.*?)</b>", figure)
    assert told["runs"] == 7


@HAS_CHROMIUM
def test_the_axis_the_band_and_the_smoothing_are_chosen_in_the_page(runs: list[Path]) -> None:
    path = write_report(runs, runs[0].parent / "page.html")
    first, wall, boot, smooth, alone, shown = in_a_browser(
        path,
        """tell();
        choose({axis: "seconds"}); tell();
        choose({band: "bootstrap"}); tell();
        choose({smoothing: 0.9}); tell();
        page.getElementById("runs").checked = false; choose({}); tell();
        const svg = figure.querySelector("svg[role]"), box = svg.getBoundingClientRect();
        svg.dispatchEvent(new frame.PointerEvent("pointermove",
          {clientX: box.left + box.width / 2, clientY: box.top + 9}));
        told.push([...figure.querySelectorAll(".tip span")].map(one => one.textContent));""",
    )
    assert (first["axis"], wall["axis"]) == ("environment steps", "wall clock (seconds)")
    assert wall["lines"] == first["lines"]
    assert boot["areas"] != wall["areas"]
    assert boot["lines"] == wall["lines"]
    # Seeds give 10, 12 and 10 at the end: the bootstrap of their mean reaches from 10 to 12.
    assert boot["legend"][0] == "10.667 (10 to 12)"
    assert smooth["lines"] != boot["lines"]
    assert (smooth["runs"], alone["runs"]) == (6, 0)
    assert shown[0].startswith("wall clock (seconds) ")
    assert [row.split(":")[0] for row in shown[1:]] == ["fast (3 runs)", "slow (3 runs)"]


@HAS_CHROMIUM
def test_no_script_but_the_pages_own_runs_in_a_browser(tmp_path: Path) -> None:
    runs = [a_run(tmp_path, f"run-{n}", 1.0, n, name=HOSTILE[n]) for n in range(3)]
    path = write_report(runs, tmp_path / "page.html")
    # An enemy who writes a script into the page itself.
    path.write_text(
        path.read_text().replace("<main>", "<main><script>document.title = 'owned'</script>")
    )
    told = in_a_browser(path, "told.push(page.title, page.querySelectorAll('script').length);")
    assert told[0] != "owned"
    assert told[1] == 3


@HAS_CHROMIUM
def test_controls_are_hidden_where_no_script_runs(runs: list[Path]) -> None:
    path = write_report(runs, runs[0].parent / "page.html")
    steps = "told.push(page.getElementById('choices').hidden, page.querySelectorAll('#axis option').length);"
    assert in_a_browser(path, steps) == [False, 4]
    path.write_text(path.read_text().replace("sha256-", "sha256-A"))
    assert in_a_browser(path, steps) == [True, 0]


def test_a_noisy_mean_has_no_trend_of_its_own(tmp_path: Path) -> None:
    runs = []
    for seed in range(2):
        runs.append(a_run(tmp_path, f"run-{seed}", 1.0, seed))
        rows = [{"opt_steps": n, "train/loss": (n * 37 + seed) % 101} for n in range(1, 301)]
        write_lines(runs[-1] / "metrics.jsonl", rows)
    assert "their mean</li>" in Page(write_report(runs[:1])).source
    source = Page(write_report(runs)).source
    assert "their mean</li>" not in source
    assert 'class="line c0 faint"' not in source


@pytest.mark.parametrize("seconds", ["nan", "inf", -5, 1e308, 10**400, True, None, [1], "x"])
def test_whatever_stands_for_a_time_or_a_best_model_the_page_is_written(
    runs: list[Path], seconds: Any
) -> None:
    lines = [{"opt_steps": n, "seconds": seconds, "cpu_seconds": n * 1.0} for n in (1, 2, 3)]
    write_lines(runs[0] / "timing.jsonl", lines)
    best = {"metric": "eval/return", "mode": 7, "score": 1.0, "counters": {"opt_steps": 10**400}}
    for run in runs[:4:3]:
        ends = [{"time": 1.0, "event": "started"}, {"event": "finished", "best": best}]
        write_lines(run / "events.jsonl", ends)
    note = json.loads((runs[1] / "run.json").read_text())
    odd = {"config": [1], "seed": {"a": 1}}
    (runs[1] / "run.json").write_text(json.dumps({**note, **odd}))
    for some in (runs, runs[:2], [runs[0], runs[3]]):
        data = data_of(Page(write_report(some)))
        line = data["charts"][0]["lines"][0]["runs"][0]
        assert "cpu_seconds" in line["x"]
        assert "seconds" not in line["x"]


def test_a_note_that_is_of_many_runs_stands_once(runs: list[Path]) -> None:
    for run in runs:
        (run / "timing.jsonl").unlink()
    (runs[0] / "config.yaml").unlink()
    text = Page(write_report(runs)).text
    assert text.count("timing.jsonl is missing.") == 1
    assert "slow-0, slow-1, slow-2 and 3 more: timing.jsonl is missing." in text
    assert "slow-0: config.yaml is missing or empty." in text
