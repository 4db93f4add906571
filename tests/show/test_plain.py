"""Lines of text for a pipe: each tells what it is about, and no line is too long to read."""

from __future__ import annotations

from dataclasses import dataclass, field

from ludus.core.plan import Repeat, Stage
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


def test_a_line_of_many_figures_has_the_ten_that_tell_most():
    console = a_console()
    with make_display("plain", {}, a_plan(), console=console) as display:
        display(a_run(("train", 0, 1), ("epoch", 2, 30), opt_steps=63))
        display.show(MANY, {"opt_steps": 63})
    (line,) = written(console).splitlines()[1:]
    begin = (
        "epoch 2/30  opt_steps 63  train/loss 0.25  eval/accuracy 0.75  eval/verifier/accuracy 0.5"
    )
    assert line.startswith(begin)
    assert line.count("train/verifier/metric") == 7
    assert "(+ 33 more in metrics.jsonl)  7%" in line


def test_a_line_of_few_figures_has_all_of_them_in_their_order():
    console = a_console()
    record = {f"train/metric_{n}": n for n in range(16)} | {"eval/return": 1, "train/loss": 2}
    with make_display("plain", {}, a_plan(), console=console) as display:
        display.show(record, {})
    line = written(console).splitlines()[1]
    assert line.split("  ")[1:-1] == [f"{name} {value}" for name, value in record.items()]


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
    lines = written(console).splitlines()[1:]
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
    lines = written(console).splitlines()[1:]
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
    lines = written(console).splitlines()[1:]
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
    line = written(console).splitlines()[1]
    assert line.startswith("starting  model models/final  train/loss 0.25  eval/accuracy 0.75")
    assert not [name for name in ("reply", "poem", "more a") if name in line]


def test_what_is_logged_after_a_live_display_has_closed_is_a_short_line_too():
    console = a_console()
    screen = Screen()
    screen.set(make_display("rich", {}, a_plan(), console=console))
    screen.show()
    screen.hide()
    screen.write(Written(MANY))
    assert "(+ 33 more in" in written(console).replace("\n", " ")
    assert "train/verifier/metric_39" not in written(console)


def test_a_panel_too_small_for_all_its_rows_shows_those_that_tell_most():
    picture = "\n".join(drawn(Scene(about={}, place=Place(), metrics=MANY), 100, 15))
    assert "train/loss" in picture
    assert "eval/accuracy" in picture
