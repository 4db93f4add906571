"""Lines of text for a pipe: each tells what it is about, and no line is too long to read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from ludus.config.registry import find, kinds
from ludus.core import counters
from ludus.core.loop import walk
from ludus.core.plan import Repeat, Stage
from ludus.core.run import Run
from ludus.show.display import make_display
from ludus.show.panels import Scene
from ludus.show.progress import Place
from ludus.show.screen import Screen
from tests.show.test_display import a_console, a_plan, a_run, nothing, written
from tests.show.test_panels import drawn

MANY = {
    **{f"train/verifier/metric_{n}": 0.0 for n in range(40)},
    "eval/verifier/accuracy": 0.5,
    "eval/accuracy": 0.75,
    "train/loss": 0.25,
}


def two_phases() -> Repeat:
    body = (Stage(name="work", work=nothing),)
    return Repeat(
        name="train",
        times=1,
        body=(
            Repeat(name="pretraining", times=3, body=body),
            Repeat(name="iteration", times=5, counter="iteration", body=body),
            Stage(name="finish", work=nothing),
        ),
    )


def test_a_line_of_many_figures_has_those_that_tell_most():
    console = a_console()
    with make_display("plain", {}, a_plan(), console=console) as display:
        display(a_run(("train", 0, 1), ("epoch", 2, 30), opt_steps=63))
        display.show(MANY, {"opt_steps": 63})
    (line,) = written(console).splitlines()
    begin = (
        "epoch 2/30  opt_steps 63  train/loss 0.25  eval/accuracy 0.75  eval/verifier/accuracy 0.5"
    )
    assert line.startswith(begin)
    assert line.count("train/verifier/metric") == 1
    assert "(+ 39 more)  7%" in line


def test_the_judged_score_is_the_first_figure_of_a_line_that_has_no_room_for_all():
    console = a_console()
    scores = ["train/verifier/metric_7"]
    with make_display("plain", {}, a_plan(), console=console, scores=scores) as display:
        display.show(MANY, {})
    assert written(console).split("  ")[1:3] == ["train/verifier/metric_7 0", "train/loss 0.25"]


def test_a_line_with_room_has_all_its_figures_in_their_order():
    console = a_console()
    record = {f"train/m_{n}": n for n in range(7)} | {"eval/return": 1, "train/loss": 2}
    with make_display("plain", {}, a_plan(), console=console) as display:
        display.show(record, {})
    line = written(console).splitlines()[0]
    assert line.split("  ")[1:-1] == [f"{name} {value}" for name, value in record.items()]


def test_a_line_of_the_longest_names_is_under_160_characters_and_cuts_no_number():
    console = a_console()
    value = -1.2345678e-05
    record = {f"eval/{'long_' * 30}{n}/return_mean": value for n in range(30)}
    counters = {f"{'many_' * 5}{n}_steps": 10**12 + n for n in range(8)}
    facts = {f"fact_{n}": "x" * 40 for n in range(9)}
    plan = Repeat(name="train", times=1, body=(Repeat(name="loop_" * 30, times=9, body=()),))
    with make_display("plain", facts, plan, console=console) as display:
        display(a_run(("train", 0, 1), ("loop_" * 30, 2, 9), opt_steps=63))
        display.show(record, counters)
    *about, line = written(console).splitlines()
    assert all(len(one) < 160 for one in (*about, line))
    assert len(about) > 1
    figures = [word.rpartition(" ") for word in line.split("  ") if word.startswith("eval/")]
    assert figures
    assert {number for *_, number in figures} == {"-1.235e-05"}
    assert all("…" in name and name.endswith("return_mean") for name, *_ in figures)


LONG = [
    *("validation/epoch_accuracy_of_the_five_likeliest", "eval/return_mean", "train/loss"),
    *("rollout/normalised_observation_variance_largest", "train/policy_gradient_loss"),
    *("test/expected_calibration_error_scaled", "pool/class_share/largest_of_all_the_classes"),
    *("pretraining/eval/verifier/solo_accuracy", "eval/verifier/accuracy_where_it_was_decided"),
]


@pytest.mark.parametrize("kind", [*kinds("trainer")])
def test_a_line_of_each_kind_begins_with_its_score_and_is_under_160_characters(kind: str):
    console, counted = a_console(), counters.of(find("trainer", kind))
    run = Run(counted)
    run.cursor = a_run(("train", 0, 1), ("epoch", 1234, 30_000), ("step", 1234, 45_678)).cursor
    run.counters.update(dict.fromkeys(counted, 1_234_567_890))
    scores = ["eval/verifier/accuracy_where_it_was_decided"]
    with make_display(
        "plain", {}, a_plan(30_000, 45_678), console=console, scores=scores
    ) as display:
        display(run)
        display.show(dict.fromkeys(LONG, -1.2345678e-05), dict(run.counters))
    (line,) = written(console).splitlines()
    assert len(line) < 160
    words = line.split("  ")
    assert words[0] == "epoch 1235/30000 step 1234/45678"
    figures = [word for word in words if "/" in word.split(" ")[0]]
    assert figures[0] == f"{scores[0]} -1.235e-05"
    assert all(word.endswith(" -1.235e-05") for word in figures)


def test_the_last_line_says_that_all_is_done_and_how_fast():
    console, run = a_console(), Run()

    def work(run: Run) -> None:
        run.counters["env_steps"] += 8

    plan = a_plan(2, 2, work)
    plan = Repeat(name="train", times=1, body=(*plan.body, Stage(name="keep", work=nothing)))
    with make_display("plain", {}, plan, console=console) as display:
        display(run)
        hooks = {"after_epoch": (lambda: display.show({"eval/loss": 1.0}, dict(run.counters)),)}
        walk(plan, run, {**hooks, "after_train": (display.close,)}, [display], nothing)
    lines = written(console).splitlines()
    assert lines[-1].startswith("finished  env_steps 32  opt_steps 4  epoch 2  100% 0:00 elapsed")
    assert lines[-1].endswith("env_steps/s")
    assert ["100%" in line for line in lines] == [False, False, True]


def test_the_last_line_of_a_stopped_run_says_why_and_how_far_it_was():
    console, run = a_console(), Run()

    def work(run: Run) -> None:
        if run.counters["opt_steps"] == 1:
            run.stop("early stopping: no progress")

    plan = a_plan(2, 2, work)
    with make_display("plain", {}, plan, console=console) as display:
        display(run)
        walk(plan, run, {"after_train": (display.close,)}, [display], nothing)
    (line,) = written(console).splitlines()
    assert line.startswith("stopped: early stopping: no progress  opt_steps 2")
    assert re.findall(r"\d+%", line) == ["50%"]


def test_a_run_that_was_interrupted_does_not_say_that_it_is_over():
    console = a_console()
    with make_display("plain", {}, a_plan(), console=console) as display:
        display(a_run(("train", 0, 1), ("epoch", 2, 30)))
    assert written(console) == ""


def test_each_pass_of_pretraining_has_a_line_and_no_later_line_repeats_it():
    console = a_console()
    with make_display("plain", {}, two_phases(), console=console) as display:
        run = a_run(("train", 0, 1), ("pretraining", 0, 3))
        display(run)
        for index in range(3):
            run.cursor[1].index = index
            record = {"pretraining/loss": index, "pretraining/eval/verifier/accuracy": 0.5}
            display.show(record, {"examples": 64 * (index + 1)})
        run.cursor[1:] = a_run(("iteration", 0, 5)).cursor
        display.show({"eval/accuracy": 0.75}, {"examples": 192, "iteration": 1})
    lines = written(console).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        *("pretraining 0/3", "pretraining 1/3", "pretraining 2/3", "iteration 0/5")
    ]
    assert [line.count("pretraining/loss") for line in lines] == [1, 1, 1, 0]


def test_what_was_held_back_of_another_loop_has_a_line_of_its_own():
    console = a_console()
    with make_display("plain", {}, two_phases(), console=console) as display:
        run = a_run(("train", 0, 1), ("pretraining", 1, 3))
        display(run)
        display.show({"pretraining/loss": 1.0}, {"examples": 64})
        display.show({"pretraining/loss": 0.5}, {"examples": 128})
        run.cursor[1:] = a_run(("iteration", 0, 5)).cursor
        display.show({"train/loss": 2.0}, {"examples": 128, "iteration": 1})
    lines = written(console).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        *("pretraining 1/3", "pretraining 1/3", "iteration 0/5")
    ]
    assert "pretraining/loss 0.5" in lines[1]
    assert "pretraining/loss" not in lines[2]


def test_figures_of_one_moment_or_that_are_all_replaced_share_a_line():
    console = a_console()
    with make_display("plain", {}, two_phases(), console=console) as display:
        run = a_run(("train", 0, 1), ("iteration", 3, 5))
        display(run)
        display.show({"train/loss": 4.0}, {"iteration": 2})
        display.show({"train/loss": 3.0}, {"iteration": 3})
        run.cursor[1:] = a_run(("finish", 0, None)).cursor
        display.show({"test/loss": 1.0}, {"iteration": 3})
        run.cursor[1:] = a_run(("iteration", 4, 5)).cursor
        display.show({"train/loss": 2.0}, {"iteration": 4})
        run.cursor[1:] = a_run(("finish", 0, None)).cursor
        display.show({"train/loss": 1.0, "test/loss": 0.5}, {"iteration": 5})
    lines = written(console).splitlines()
    assert [line.count("/loss") for line in lines] == [1, 2, 2]


@dataclass
class Written:
    """What a screen reads of a record."""

    scalars: dict[str, float]
    texts: dict[str, list[str]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


def test_a_short_text_stands_before_the_figures_and_a_long_one_does_not():
    console = a_console()
    screen = Screen()
    screen.set(make_display("plain", {}, a_plan(), console=console))
    screen.show()
    texts = {
        "model": ["models/final"],
        "reply": ["word " * 40],
        "poem": ["one\ntwo"],
        "more": ["a", "b"],
    }
    screen.write(Written(MANY, texts))
    screen.hide()
    line = written(console).splitlines()[0]
    assert line.startswith("starting  model models/final  train/loss 0.25  eval/accuracy 0.75")
    assert not [name for name in ("reply", "poem", "more a") if name in line]


def test_what_is_logged_after_a_live_display_has_closed_is_a_short_line_too():
    console = a_console()
    screen = Screen()
    screen.set(make_display("rich", {}, a_plan(), console=console))
    screen.show()
    screen.hide()
    screen.write(Written(MANY))
    assert "(+ 37 more)" in written(console).replace("\n", " ")
    assert "train/verifier/metric_39" not in written(console)


def test_a_panel_too_small_for_all_its_rows_shows_those_that_tell_most():
    picture = "\n".join(drawn(Scene(about={}, place=Place(), metrics=MANY), 100, 15))
    assert "train/loss" in picture
    assert "eval/accuracy" in picture
