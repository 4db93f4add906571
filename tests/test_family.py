"""A family of one's own, in one folder outside ludus, is as much at home as those that come with it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.command_line import Ludus, Outcome
from tests.faults.warm import WarmProcess

ARCADE = Path(__file__).parent / "plugins" / "arcade"
PLUGIN = ("--plugin", "arcade")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, warm: WarmProcess) -> Path:
    """Return a directory with the family, and one run of it."""
    place = tmp_path_factory.mktemp("place")
    shutil.copytree(ARCADE, place / "arcade", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ARCADE / "duel.yaml", place)
    trained = warm.command("train", "duel.yaml", *PLUGIN, "--json", cwd=place)
    assert trained.json["counters"]["bout"] == 12
    assert trained.json["exact"] == "expected", trained.json["inexact_because"]
    return place


@pytest.fixture
def call(place: Path, warm: WarmProcess) -> Ludus:
    def call(*words: str) -> Outcome:
        return warm.command(*words, cwd=place)

    return call


def test_its_counter_is_in_every_log_and_in_the_list_of_runs(place: Path, call: Ludus) -> None:
    heading, first = (place / "runs/duel/metrics.csv").read_text().splitlines()[:2]
    assert heading == "env_steps,opt_steps,epoch,iteration,examples,tokens,bout,name,value"
    assert first == "0,0,0,0,0,0,2,play/score,1.0"
    # A list and a report are made without the plugin.
    assert "bout 12" in call("runs").out


def test_a_plan_that_moves_no_usual_counter_is_drawn_along_its_own(place: Path) -> None:
    (events,) = (place / "runs/duel").rglob("events.out.tfevents*")
    drawn = EventAccumulator(str(events)).Reload()
    assert [point.step for point in drawn.Scalars("play/score")] == [2, 4, 6, 8, 10, 12]


def test_a_report_draws_its_metrics_along_its_counter_and_not_the_counter(
    place: Path, call: Ludus
) -> None:
    call("report", "runs/duel", "--out", "page.html")
    page = (place / "page.html").read_text()
    # Four charts, one for each metric, all along the counter, which has none itself.
    assert len(re.findall(r'class="mid name"[^>]*>bout<', page)) == 4
    assert len(re.findall(r'class="mid name"', page)) == 4


def test_its_section_stands_in_a_report_that_is_made_with_the_plugin(
    place: Path, call: Ludus
) -> None:
    assert call("report", "runs/duel", "--out", "with.html", *PLUGIN).code == 0
    shown = (place / "with.html").read_text().split("<h2>Prizes</h2>")[1].split("<h2>")[0]
    lines = (place / "runs/duel/journals/prizes.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])["record"]["likes"]
    assert f'duel <b title="the last value">{last}</b>' in shown
    assert call("report", "runs/duel", "--out", "without.html").code == 0
    assert "Prizes" not in (place / "without.html").read_text()


def test_its_example_is_complete_and_its_keys_are_explained(call: Ludus) -> None:
    assert call("new", "duel", *PLUGIN).out == (ARCADE / "duel.yaml").read_text()
    told = call("explain", "duel.yaml", "settings.arcade", "game", *PLUGIN).out
    assert "settings.arcade.volume = 3" in told
    assert "How loud it is" in told
    assert "game.sticks = 21" in told


def test_its_settings_section_is_as_strict_as_all_else_and_for_its_kinds_alone(
    place: Path, call: Ludus
) -> None:
    wrong = ("settings.arcade.volume=0", "settings.arcade.loud=1", "num_games=3")
    told = call("train", "duel.yaml", *wrong, *PLUGIN, "--run", "other").refusal()
    assert "'settings.arcade.volume' must be greater than or equal to 1" in told
    assert "'settings.arcade.loud' is not a key of settings.arcade" in told
    assert "'num_games' is not a key of this config. Did you mean 'max_bouts'?" in told
    (place / "other.yaml").write_text(
        call("new", "supervised").out.replace("settings:", "settings:\n  arcade: {volume: 3}", 1)
    )
    told = call("plan", "other.yaml", *PLUGIN).refusal()
    assert "'settings.arcade' is not a key here" in told


def test_a_counter_of_its_plan_that_it_did_not_declare_is_refused_before_anything_is_written(
    place: Path, call: Ludus
) -> None:
    shutil.copytree(place / "arcade", place / "wrong")
    (place / "wrong/__init__.py").write_text(
        (ARCADE / "__init__.py").read_text().replace('"bout"', '"bouts"')
    )
    told = call("train", "duel.yaml", "--plugin", "wrong", "--run", "wrong").refusal()
    assert told.startswith("no counter is named 'bout'. Did you mean 'bouts'?")
    assert not (place / "runs/wrong").exists()


def test_its_command_is_found_with_the_plugin_on_either_side_and_has_its_place_in_the_help(
    call: Ludus,
) -> None:
    assert call("scoreboard", "runs/duel", *PLUGIN).out.startswith("0:1 1:3 2:3 ")
    assert call(*PLUGIN, "scoreboard", "runs/duel", "--last").out == "11:3\n"
    assert call("scoreboard", "runs/duel", "--plugin=arcade", "--last").out == "11:3\n"
    told = call(*PLUGIN, "--help").out
    assert told.index("doctor") < told.index("Commands of arcade") < told.index("scoreboard")
    without = call("scoreboard", "runs/duel")
    assert without.code == 2
    assert "No such command 'scoreboard'" in without.err


def test_its_plan_is_shown(call: Ludus) -> None:
    lines = [line.strip() for line in call("plan", "duel.yaml", *PLUGIN).out.splitlines()]
    assert lines[-6:] == [
        "train",
        "bout x 12",
        "play",
        "give_prize",
        "evaluate (if asked)",
        "settle",
    ]


def test_both_its_players_have_a_best_model_that_is_evaluated(place: Path, call: Ludus) -> None:
    rows = [
        json.loads(line) for line in (place / "runs/duel/metrics.jsonl").read_text().splitlines()
    ]
    for player, words in (("first", ()), ("second", ("--model", "best-second"))):
        metric = f"eval/{player}_margin"
        told = call("eval", "runs/duel", *words, *PLUGIN, "--json").json
        # The evaluator beside training, found in another process by the trainer's kind, said the same.
        assert told["metrics"] == {metric: max(row[metric] for row in rows if metric in row)}
    (listed,) = [run for run in call("runs", "--json").json["runs"] if run["name"] == "duel"]
    assert listed["best_metric"] == "eval/first_margin"
    assert listed["more_bests"]["second"]["metric"] == "eval/second_margin"


def test_its_evaluations_bear_the_counter_of_their_launch(place: Path) -> None:
    rows = [
        json.loads(line) for line in (place / "runs/duel/metrics.jsonl").read_text().splitlines()
    ]
    assert [row["bout"] for row in rows if "eval/first_margin" in row] == [3, 7, 11]


def test_its_length_is_raised_on_resume_and_not_lowered(place: Path, call: Ludus) -> None:
    shutil.copytree(place / "runs/duel", place / "runs/longer")
    words = ("max_bouts=15", "settings.arcade.volume=9", *PLUGIN)
    longer = call("resume", "runs/longer", *words, "--json")
    assert longer.json["counters"]["bout"] == 15
    prizes = (place / "runs/longer/journals/prizes.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in prizes] == [str(bout) for bout in range(15)]
    told = call("resume", "runs/longer", "max_bouts=5", *PLUGIN).refusal()
    assert "'max_bouts' of a run may be raised, not lowered" in told


def test_a_run_of_it_that_is_killed_ends_with_the_same_bytes(call: Ludus) -> None:
    told = call("verify", "duel.yaml", "max_bouts=6", "--kills", "1", *PLUGIN)
    assert told.code == 0, told.err
    assert "proved: killed once, the same bytes at the end" in told.out


def test_the_page_shows_the_family_as_it_is() -> None:
    page = (ARCADE.parents[2] / "docs/add-your-own.md").read_text().partition("## A family")[2]
    shown = re.findall(r"`arcade/([\w/.]+)`[^`]*\n```py\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in shown] == [
        "__init__.py",
        "games/nim.py",
        "trainers/duel.py",
        "trainers/duel.py",
        "commands/scoreboard.py",
        "report/prizes.py",
    ]
    for name, code in shown:
        assert code.strip() in (ARCADE / name).read_text(), f"{name} is not what the page shows"
