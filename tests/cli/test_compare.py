"""`ludus compare` tells what differs between runs and which is better; `report` takes groups."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.core.errors import RunError
from ludus.judge.confidence import bootstrap_interval, mean_interval, probability_of_improvement
from ludus.show.comparing import compare
from tests.cli.test_listing import is_safe
from tests.command_line import Ludus, in_process, small_config
from tests.show.test_report import HOSTILE, make_run

SLOW, FAST = [10.0, 14.0, 12.0, 11.0, 9.0], [15.0, 13.0, 20.0, 18.0, 16.0]


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


def a_run(name: str, score: float | None, seed: int = 0, **about: Any) -> Path:
    best = {"metric": "eval/return", "mode": "max", "score": score, "counters": {"opt_steps": 1}}
    rows = [{"opt_steps": n, "train/loss": 1 / n + seed, "odd": n * 1.0} for n in (1, 2)]
    run = make_run(
        Path("runs") / name,
        name=name,
        metrics=rows,
        ending={"best": None if score is None else best},
    )
    change(run, **{"seed": seed, "kind": "ppo", "config": {"gamma": 0.9, "seed": seed}, **about})
    return run


def change(run: Path, **about: Any) -> None:
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**note, **about}))


@pytest.fixture
def sides(call: Ludus) -> tuple[str, str]:
    """Two groups of five seeds."""
    for name, scores, gamma in (("slow", SLOW, 0.9), ("fast", FAST, 0.99)):
        for seed, score in enumerate(scores):
            config = {
                "gamma": gamma,
                "seed": seed,
                "clip": 0.2,
                **({"extra": [1]} if gamma > 0.9 else {}),
            }
            change(a_run(f"{name}-{seed}", score, seed), group=name, config=config)
    return "fast", "slow"


def test_groups_are_compared_by_name_with_intervals(call: Ludus, sides: tuple[str, str]) -> None:
    told = call("compare", *sides, "--json").json
    assert (told["metric"], told["mode"], told["take"]) == ("eval/return", "max", "best")
    mean = mean_interval(FAST, confidence=0.95)
    assert told["a"]["mean"] == {"mean": 16.4, "low": mean.low, "high": mean.high, "count": 5}
    assert [row["score"] for row in told["b"]["runs"]] == SLOW
    assert told["difference"]["value"] == pytest.approx(np.mean(FAST) - np.mean(SLOW))
    low, high = bootstrap_interval(
        FAST, SLOW, statistic=lambda x, y: x.mean(axis=1) - y.mean(axis=1), confidence=0.95
    )
    assert (told["difference"]["low"], told["difference"]["high"]) == (low, high)
    # 13 is below 14 alone: 24 of 25 pairs.
    probability = told["probability_a_is_better"]
    assert probability["value"] == pytest.approx(24 / 25)
    bounds = bootstrap_interval(FAST, SLOW, statistic=probability_of_improvement, confidence=0.95)
    assert (probability["low"], probability["high"]) == bounds
    assert told["config"] == {
        "gamma": {"a": "0.99", "b": "0.9"}, "extra": {"a": "[1]", "b": "-"},
    }  # fmt: skip
    assert told["environment"] == {}
    assert told["notes"] == []


def test_seeds_that_both_sides_have_are_pairs(call: Ludus, sides: tuple[str, str]) -> None:
    told = call("compare", *sides, "--json").json
    assert told["pairs"][1] == {"seed": 1, "a": 13.0, "b": 14.0}
    assert told["paired_difference"]["value"] == pytest.approx(5.2)
    out = call("compare", *sides).out
    assert "same seeds: A is better in 4 of 5 pairs; mean of their differences: 5.2 (95%: " in out
    # A seed that stands twice on a side has no partner.
    a_run("again", 9.0, seed=0)
    told = call("compare", "fast,runs/again", "slow", "--json").json
    assert (told["pairs"], told["paired_difference"]) == ([], None)


def test_the_tables_for_people_say_the_same(call: Ludus, sides: tuple[str, str]) -> None:
    change(Path("runs/slow-3"), host="elsewhere", versions={"torch": "2.12", "numpy": "2.0"})
    lines = [" ".join(line.split()) for line in call("compare", *sides).out.splitlines()]
    for line in (
        "config A B",
        "gamma 0.99 0.9",
        "extra [1] -",
        "versions and machine A B",
        "host node-7 node-7 | elsewhere",
        "versions.torch 2.13.0+cpu 2.13.0+cpu | 2.12",
        "best eval/return runs mean 95% interval of each",
        "A fast 5 16.4 13.045 to 19.755 seed 0: 15, seed 1: 13, seed 2: 20, seed 3: 18, seed 4: 16",
        "higher is better",
    ):
        assert line in lines, line
    assert any(line.startswith("A minus B: 5.2 (95%: ") for line in lines)
    assert any(
        line.startswith("probability that a run of A is better: 0.96 (95%: ") for line in lines
    )


def test_runs_are_joined_by_commas_and_found_by_name_or_place(
    call: Ludus, sides: tuple[str, str]
) -> None:
    told = call("compare", "fast-0, runs/fast-1", "slow-0,slow-1", "--json").json
    assert [row["run"] for row in told["a"]["runs"]] == ["runs/fast-0", "runs/fast-1"]
    assert "fewer than 5 runs" in told["notes"][0]


def test_a_metric_of_the_log_is_taken_at_its_best_or_its_last(
    call: Ludus, sides: tuple[str, str]
) -> None:
    for run in Path("runs").iterdir():
        rows = [{"opt_steps": n, "train/loss": loss} for n, loss in enumerate((3.0, 1.0, 2.0))]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    best = call("compare", "fast-0", "slow-0", "--metric", "train/loss", "--json").json
    assert (best["mode"], best["a"]["mean"]["mean"]) == ("min", 1.0)
    last = call("compare", "fast-0", "slow-0", "--metric", "train/loss", "--take", "last", "--json")
    assert last.json["a"]["mean"]["mean"] == 2.0
    low = call(
        "compare", "fast-0", "slow-0", "--metric", "train/loss", "--mode", "max", "--json"
    ).json
    assert low["a"]["mean"]["mean"] == 3.0


def test_a_recorded_best_is_no_score_where_the_other_direction_is_asked_for(call: Ludus) -> None:
    for name in ("a", "b"):
        run = a_run(name, 5.0)
        rows = [{"opt_steps": n, "eval/return": value} for n, value in enumerate((5.0, 1.0, 3.0))]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("compare", "a", "b", "--metric", "eval/return", "--json")
    assert call(*words).json["a"]["mean"]["mean"] == 5.0
    assert call(*words, "--mode", "min").json["a"]["mean"]["mean"] == 1.0


def test_where_lower_is_better_the_lower_side_is_likely_better(call: Ludus) -> None:
    for seed, (ours, theirs) in enumerate([(1.0, 2.0), (1.5, 3.0)]):
        for name, loss in (("a", ours), ("b", theirs)):
            rows = [{"opt_steps": 1, "train/loss": loss}]
            run = a_run(f"{name}{seed}", None, seed)
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = call("compare", "a0,a1", "b0,b1", "--metric", "train/loss", "--json").json
    assert told["probability_a_is_better"]["value"] == 1.0
    assert told["difference"]["value"] == -1.25
    assert (
        "A is better in 2 of 2 pairs"
        in call("compare", "a0,a1", "b0,b1", "--metric", "train/loss").out
    )


def test_single_seeds_have_no_interval_and_say_so(call: Ludus, sides: tuple[str, str]) -> None:
    told = call("compare", "fast-0", "slow-0", "--json").json
    assert told["difference"] == {"value": 5.0, "low": None, "high": None}
    assert told["probability_a_is_better"] is None
    assert told["notes"] == [
        "Each side is a single seed: no interval is possible; train more seeds."
    ]
    out = call("compare", "fast-0", "slow").out
    assert "fast-0 is a single seed: no interval of the difference is possible." in out
    assert "probability that a run of A is better: 1\n" in out


def test_what_limits_a_comparison_is_noted(call: Ludus, sides: tuple[str, str]) -> None:
    change(Path("runs/slow-0"), kind="dqn")
    (Path("runs/slow-0") / "events.jsonl").write_text(
        json.dumps(
            {"event": "saved", "best": {"metric": "eval/return", "mode": "max", "score": 1.0}}
        )
        + "\n"
    )
    notes = call("compare", "fast-0,slow-1", "slow-0", "--json").json["notes"]
    assert "The sides are of different kinds: ppo and dqn." in notes
    assert "The runs of fast-0,slow-1 differ in gamma, extra: their mean mixes configs." in notes
    assert "runs/slow-0 has not ended: its score may still change." in notes


def test_a_value_that_was_changed_on_a_resume_differs(call: Ludus) -> None:
    at = {"key": "gamma", "old": 0.9, "new": 0.99, "boundary": 3, "counters": {"opt_steps": 300}}
    a_run("kept", 1.0)
    a_run("changed", 2.0, changes=[at])
    told = call("compare", "kept", "changed", "--json").json
    assert told["config"] == {"gamma": {"a": "0.9", "b": "0.9, then 0.99 from opt_steps 300"}}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fast-0", "fast"), "runs/fast-0 is on both sides; compare different runs"),
        (("runs/../runs/fast-0", "fast"), "runs/fast-0 is on both sides; compare different runs"),
        (("fast-0,", "slow"), "'fast-0,' names an empty run; join runs with single commas"),
        (("fest", "slow"), "fest is not a run directory; `ludus runs` lists the runs there are"),
        (("fast-0,other", "slow"), "the runs of fast-0,other are of different kinds (ppo, supervised)"),
        (("fast-0", "unscored"), "runs/unscored has no score: it has recorded no best model yet; name"),
        (("fast-0", "other"), "no score is common: fast-0 (ppo) is scored by eval/return and other"
                              " (supervised) is scored by validation/epoch_loss; name a metric"),
        (("fast-0", "slow-0", "--metric", "train/los"), "runs/fast-0 logs no 'train/los'. Did you mean"
                                                        " 'train/loss'?"),
        (("fast-0", "slow-0", "--metric", "odd"), "cannot tell whether 'odd' should go up or down; say"
                                                  " --mode max or min"),
        (("fast-0", "bad", "--metric", "train/loss"), "no 'train/loss' of runs/bad is finite, so"),
        (("fast-0", "bad", "--metric", "train/loss", "--take", "last"), "the last 'train/loss' of"
                                                                        " runs/bad is nan; try"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_in_one_sentence(
    call: Ludus, sides: tuple[str, str], words: tuple[str, ...], told: str
) -> None:
    make_run(Path("runs/other"), name="other")
    a_run("unscored", None)
    bad = a_run("bad", 1.0)
    (bad / "metrics.jsonl").write_text('{"opt_steps": 1, "train/loss": "nan"}\n')
    said = call("compare", *words).refusal()
    assert said.startswith(told)
    assert "\n" not in said


def test_a_run_counts_once_on_a_side(sides: tuple[str, str]) -> None:
    with pytest.raises(RunError, match="a run is given twice among"):
        compare(["runs/fast-0", "runs/../runs/fast-0"], ["runs/slow-0"])


def test_a_run_that_repeats_another_counts_once_and_is_named(call: Ludus) -> None:
    a_run("first", 1.0, seed=5)
    a_run("again", 1.0, seed=5)
    for seed in (5, 6):
        a_run(f"other-{seed}", 2.0 + seed, seed, config={"gamma": 0.5})
    told = call("compare", "first,again", "other-5,other-6", "--json").json
    assert (told["a"]["mean"]["count"], told["a"]["mean"]["low"]) == (1, None)
    assert told["probability_a_is_better"] == {"value": 0.0, "low": None, "high": None}
    assert [pair["seed"] for pair in told["pairs"]] == [5]
    assert "again has the config and the seed of first, so only first counts." in told["notes"]


def test_hostile_names_do_not_reach_the_terminal(call: Ludus) -> None:
    steering = "\x1b]0;owned\x07\x1b[2J[red]x"
    for n in range(2):
        run = a_run(
            f"run-{n}", 1.0 + n, config={f"key{steering}": n, "b": HOSTILE[0]}, host=steering * n
        )
        (run / "events.jsonl").write_text(
            (run / "events.jsonl").read_text().replace("eval/return", json.dumps(steering)[1:-1])
        )
    out = call("compare", "run-0", "run-1").out
    assert is_safe(out)
    assert "[red]x" in out


def test_real_runs_are_compared_and_their_processor_time_is_logged(call: Ludus) -> None:
    import ludus

    for seed in (0, 1):
        for rate in (0.01, 0.1):
            config = small_config(seed=seed, **{"optimizer.learning_rate": rate})
            ludus.build_trainer(config).fit(name=f"lr{rate}-{seed}")
    told = call("compare", "lr0.01-0,lr0.01-1", "lr0.1-0,lr0.1-1", "--json").json
    assert list(told["config"]) == ["optimizer.learning_rate"]
    assert (told["a"]["name"], told["metric"]) == ("lr0.01", "validation/epoch_accuracy")
    times = [
        json.loads(line) for line in Path("runs/lr0.1-0/timing.jsonl").read_text().splitlines()
    ]
    assert all(one["cpu_seconds"] >= 0 and one["seconds"] > 0 for one in times)
    assert times[-1]["cpu_seconds"] >= times[0]["cpu_seconds"]
    page = call(
        "report", "lr0.01-0", "lr0.01-1", "lr0.1-0", "--band", "minmax", "--out", "page.html"
    )
    assert page.out == "page.html\n"
    assert "CPU time" in Path("page.html").read_text()


def test_a_report_takes_the_name_of_a_group(call: Ludus, sides: tuple[str, str]) -> None:
    assert call("report", "fast", "slow-0").out == "runs/report.html\n"
    assert call("report", "fast", "-o", "page.html").out == "page.html\n"
    page = Path("runs/report.html").read_text()
    assert "6 runs in 2 groups" in page
    assert call("report", "fest").refusal().startswith("fest is not a run directory")
    assert call("report", "fast", "--band", "sd").code == 2


@pytest.mark.parametrize("command", ["export", "play", "report"])
def test_whatever_writes_a_file_of_the_users_choice_takes_o_for_out(
    call: Ludus, command: str
) -> None:
    assert re.search(r"--out +-o", call(command, "--help").out)
