"""The displays: what they say, that they fit, and that the run never notices them."""

from __future__ import annotations

import io
import os
import pty
import random
import re
import sys
import threading
import time
import timeit
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from ludus.core.cursor import Frame
from ludus.core.errors import ConfigError
from ludus.core.loop import walk
from ludus.core.plan import Repeat, Stage
from ludus.core.run import Run
from ludus.show import live as drawing
from ludus.show.display import KINDS, Display, LiveDisplay, PlainDisplay, make_display
from ludus.show.panels import Scene

ABOUT = {"run": "runs/digits", "seed": "0", "device": "cpu (2 threads)", "logs": "[red]x"}
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def nothing(run: Run) -> None:
    return None


def a_plan(
    num_epochs: int = 30,
    num_steps: int | Callable[[Run], int] = 23,
    work: Callable[[Run], None] = nothing,
) -> Repeat:
    step = Repeat(
        name="step", times=num_steps, counter="opt_steps", body=(Stage(name="update", work=work),)
    )
    epoch = Repeat(name="epoch", times=num_epochs, counter="epoch", body=(step,))
    return Repeat(name="train", times=1, body=(epoch,))


def a_run(*frames: tuple[str, int, int | None], **counters: int) -> Run:
    run = Run()
    run.cursor = [Frame(*frame) for frame in frames]
    run.counters.update(counters)
    return run


MIDWAY = (("train", 0, 1), ("epoch", 2, 30), ("step", 17, 23))


def a_console(width: int = 100, height: int = 30) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=True, _environ={})


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'minimal'"):
        make_display("minimals", ABOUT, a_plan())


def test_auto_is_plain_for_a_pipe_even_when_colour_is_forced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = Console(file=io.StringIO())
    assert isinstance(make_display("auto", ABOUT, a_plan(), console=console), PlainDisplay)


@pytest.mark.parametrize(
    ("term", "kind"), [("xterm-256color", LiveDisplay), ("dumb", PlainDisplay)]
)
def test_auto_is_rich_on_a_terminal_that_can_redraw(term: str, kind: type[Display]):
    parent, child = pty.openpty()
    with os.fdopen(child, "w", encoding="utf-8") as terminal:
        console = Console(file=terminal, _environ={"TERM": term})
        assert type(make_display("auto", ABOUT, a_plan(), console=console)) is kind
    os.close(parent)


def test_a_plain_display_shows_every_evaluation():
    console = a_console()
    with make_display("plain", {}, a_plan(), console=console) as display:
        display(a_run(*MIDWAY))
        for value in (0.5, 0.4, 0.3):
            display.show({"validation/loss": value}, {})
    assert re.findall(r"validation/loss (\S+)", written(console)) == ["0.5", "0.4", "0.3"]


def test_a_plain_display_writes_other_metrics_now_and_then_and_never_loses_the_last():
    console = a_console()
    with make_display("plain", {}, a_plan(), console=console) as display:
        for value in range(1000):
            display.show({"train/loss": value}, {"opt_steps": value})
    assert re.findall(r"train/loss (\S+)", written(console)) == ["0", "999"]


def test_a_plain_line_says_where_how_much_and_how_long():
    console = a_console()
    with make_display("plain", ABOUT, a_plan(), console=console) as display:
        run = a_run(*MIDWAY, opt_steps=63, epoch=2)
        display(run)
        display.show({"train/loss": 0.41234}, run.counters)
    assert written(console).splitlines() == [
        "run runs/digits  seed 0  device cpu (2 threads)  logs [red]x",
        "epoch 3/30 step 17/23  opt_steps 63  train/loss 0.4123  9% 0:00 elapsed",
    ]


def test_a_plain_line_tells_the_moment_at_which_its_record_was_written():
    console = a_console()
    with make_display("plain", {}, a_plan(), console=console) as display:
        run = a_run(*MIDWAY, opt_steps=63, epoch=2)
        display(run)
        for step in (17, 18):
            run.cursor[-1].index, run.counters["opt_steps"] = step, 46 + step
            display.show({"train/loss": step}, dict(run.counters))
        run.cursor[1].index, run.counters["opt_steps"] = 20, 999
    last = written(console).splitlines()[-1]
    assert last.startswith("epoch 3/30 step 18/23  opt_steps 64  train/loss 18  9%")


def test_what_was_found_of_an_earlier_moment_is_a_line_with_the_counters_of_that_moment():
    console = a_console()
    with make_display("plain", {}, a_plan(), console=console) as display:
        run = a_run(*MIDWAY, opt_steps=63, epoch=2)
        display(run)
        display.show({"train/loss": 1.0}, dict(run.counters))
        display.show({"train/loss": 2.0}, dict(run.counters))
        display.show({"eval/return_mean": 7.0}, {"opt_steps": 40, "epoch": 1})
    lines = written(console).splitlines()
    assert lines[-2] == "opt_steps 40  epoch 1  eval/return_mean 7"
    assert lines[-1].startswith("epoch 3/30 step 17/23  opt_steps 63  train/loss 2  9%")


def test_plain_lines_count_the_rounds_that_only_the_loop_knows():
    plan = a_plan(3, lambda run: 20)
    plan = Repeat(name="train", times=1, body=(*plan.body, Stage(name="test", work=nothing)))
    console = a_console()
    with make_display("plain", {}, plan, console=console) as display:
        hooks = {"after_train": (display.close,)}

        def log(run: Run) -> None:
            if run.counters["epoch"] and len(run.cursor) == 2:
                display.show({"validation/loss": 1.0}, dict(run.counters))

        run = Run()
        display(run)  # as a session does, before any loop is open
        walk(plan, run, hooks, [display, log], nothing)
        display.show({"test/loss": 1.0}, {"epoch": 3})
    lines = written(console).splitlines()
    assert [re.findall(r"\d+%", line) for line in lines] == [
        ["33%"], ["66%"], ["98%"], ["100%"], ["100%"]
    ]  # fmt: skip
    assert lines[-1].startswith("finished  epoch 3  test/loss 1")


def test_a_plain_display_whose_reader_has_gone_lets_the_run_go_on():
    reader, writer = os.pipe()
    os.close(reader)
    file = os.fdopen(writer, "w")
    with make_display("plain", ABOUT, a_plan(), console=Console(file=file)) as display:
        display.show({"test/loss": 0.1}, {})
        display.message("still here")
    with pytest.raises(BrokenPipeError):
        file.close()


@pytest.mark.parametrize("kind", ["rich", "minimal"])
def test_a_live_display_whose_terminal_has_gone_lets_the_run_go_on(kind: str):
    class Gone(io.StringIO):
        is_gone = False

        def write(self, text: str) -> int:
            if self.is_gone:
                raise OSError(5, "Input/output error")
            return super().write(text)

    file = Gone()
    console = Console(file=file, width=60, height=15, force_terminal=True)
    with make_display(kind, ABOUT, a_plan(), console=console) as display:
        file.is_gone = True
        display.message("nobody reads this")
        display.show({"train/loss": 0.1}, {})
    assert "nobody reads this" not in file.getvalue()


@pytest.mark.covers("000-S9")
def test_none_writes_nothing():
    console = a_console()
    with make_display("none", ABOUT, a_plan(), console=console) as display:
        display(a_run(*MIDWAY))
        display.show({"test/loss": 0.1}, {})
        display.message("lost")
        display.phase("Testing", 1, 2)
    assert written(console) == ""


@pytest.mark.parametrize("kind", ["rich", "minimal"])
def test_what_a_signal_says_stands_below_the_panels_while_they_are_drawn(kind: str):
    console = a_console()
    display = make_display(kind, ABOUT, a_plan(), console=console)
    assert not display.notice("SIGINT: before it is open")
    with display:
        assert display.notice("SIGINT: saving and stopping")
    seen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written(console))
    assert seen.rstrip().splitlines()[-1].startswith("SIGINT: saving and stopping")


@pytest.mark.parametrize("kind", ["plain", "none"])
def test_lines_leave_what_a_signal_says_to_the_signal(kind: str):
    with make_display(kind, ABOUT, a_plan(), console=a_console()) as display:
        assert not display.notice("SIGINT: saving and stopping")


@pytest.mark.parametrize("kind", ["rich", "minimal", "plain"])
def test_a_message_is_printed_whole_and_harmless(kind: str):
    console = a_console()
    with make_display(kind, ABOUT, a_plan(), console=console) as display:
        display.message("checkpoint failed: [bold]disk full\x1b]0;owned\x07")
    assert "checkpoint failed: [bold]disk full" in written(console)
    assert "owned" not in written(console)


@pytest.mark.parametrize("kind", ["rich", "minimal", "plain"])
@pytest.mark.parametrize("width", [40, 160])
def test_no_name_and_no_text_can_steer_the_terminal(kind: str, width: int):
    bad = "\x1b]0;owned\x07a\x1b[2J\x9b2Jb\r\n\u202ec"
    console = a_console(width)
    step = Repeat(name=bad, times=9, body=(Stage(name=bad, work=nothing),))
    plan = Repeat(name="train", times=1, body=(step,))
    with make_display(kind, {bad: bad}, plan, console=console, scores=[f"eval/{bad}"]) as display:
        run = a_run(("train", 0, 1), (bad, 2, 9), (bad, 0, None))
        display(run)
        display.show({f"eval/{bad}": 1.0, "train/note": bad}, {bad: 3})
        display.show({f"eval/{bad}": 2.0}, {bad: 4})
        display.message(bad)
        display.phase(bad, 1, 2)
        run.stop_reason, run.is_finished = bad, True
    seen = written(console)
    assert "owned" not in seen
    assert not {"\x07", "\x9b", "\u202e", "\x1b[2J"} & {*seen, seen[-4:]}
    assert "\x1b[2J" not in seen


@pytest.mark.parametrize("kind", KINDS)
def test_opening_and_closing_twice_does_no_harm(kind: str):
    display = make_display(kind, ABOUT, a_plan(), console=a_console())
    before = {*threading.enumerate()}
    display.close()
    display.open()
    display.open()
    display.close()
    display.close()
    display.message("after the end")
    deadline = time.monotonic() + 120
    while {*threading.enumerate()} - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not {*threading.enumerate()} - before


@pytest.mark.parametrize("kind", ["rich", "minimal"])
def test_the_cursor_is_visible_throughout_and_after_an_exception(kind: str):
    console = a_console(60, 15)
    display = make_display(kind, ABOUT, a_plan(), console=console)

    def fail() -> None:
        with display:
            seen = written(console)
            assert seen.rfind(SHOW_CURSOR) > seen.rfind(HIDE_CURSOR)
            raise RuntimeError("the run failed")

    with pytest.raises(RuntimeError, match="the run failed"):
        fail()
    seen = written(console)
    assert seen.rfind(SHOW_CURSOR) > seen.rfind(HIDE_CURSOR) >= 0


def test_a_live_display_leaves_a_pipe_for_json_alone(capsys: pytest.CaptureFixture[str]):
    console = a_console()
    stdout = sys.stdout
    with make_display("rich", ABOUT, a_plan(), console=console):
        assert sys.stdout is stdout
        print('{"loss": 0.1}')
    assert capsys.readouterr().out == '{"loss": 0.1}\n'


@pytest.mark.parametrize(("width", "height"), [(100, 30), (60, 15)])
def test_drawing_survives_a_run_that_moves_under_it(
    width: int, height: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drawing, "_REDRAWS_PER_SECOND", 1000.0)
    console = a_console(width, height)
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)

    def work(run: Run) -> None:
        count = run.counters["opt_steps"]
        if count % 20 == 0:
            display.show({f"train/loss_{count}": count, "eval/score": count}, run.counters)

    plan = a_plan(200, lambda run: 3 + run.counters["epoch"] % 5, work)
    display = make_display("rich", ABOUT, plan, console=console)
    with display:
        walk(plan, Run(), {}, [display], nothing)
        assert isinstance(display, LiveDisplay)
        assert display._live is not None
        live = display._live
    assert live.failure is None
    assert failures == []
    assert "finished" in written(console)


def test_a_fault_in_the_drawing_is_reported_at_the_end_and_not_raised(
    capsys: pytest.CaptureFixture[str],
):
    display = make_display("rich", ABOUT, a_plan(), console=a_console())
    with display:
        display._draw = lambda scene, width, height: 1 / 0  # type: ignore[attr-defined]
    display.close()
    assert capsys.readouterr().err.count("the display stopped early: ZeroDivisionError") == 1


def test_what_is_being_drawn_does_not_change_when_a_record_comes_in():
    scenes = []

    def draw(scene: Scene, width: int, height: int) -> str:
        scenes.append(scene)
        return ""

    with LiveDisplay(ABOUT, a_plan(), a_console(), draw) as display:
        display.show({"train/loss": 0.1, "eval/score": 1.0}, {})
    assert (scenes[0].metrics, scenes[0].scores) == ({}, {})
    assert (scenes[-1].metrics, scenes[-1].scores["eval/score"].last) == ({"train/loss": 0.1}, 1.0)


def test_a_null_metric_is_shown_and_breaks_nothing(capsys: pytest.CaptureFixture[str]):
    for kind in ("rich", "minimal", "plain"):
        console = a_console()
        with make_display(kind, {}, a_plan(), console=console) as display:
            display.show({"eval/score": None}, {})  # type: ignore[dict-item]
        assert "None" in written(console)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_display_leaves_the_random_numbers_alone(kind: str):
    random.seed(0)
    before = random.getstate()
    console = a_console()
    with make_display(kind, ABOUT, a_plan(), console=console) as display:
        display(a_run(*MIDWAY))
        display.show({"train/loss": 0.1, "eval/score": 1.0}, {})
        display.message("https://example.org")
    assert random.getstate() == before


@pytest.mark.parametrize("kind", KINDS)
def test_watching_a_boundary_costs_next_to_nothing(kind: str):
    display = make_display(kind, ABOUT, a_plan(), console=a_console())
    run = a_run(*MIDWAY)
    display(run)
    assert min(timeit.repeat(lambda: display(run), number=20_000, repeat=5)) / 20_000 < 0.5e-6


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_display():
    console = a_console()
    with make_display("rich", ABOUT, a_plan(), console=console) as display:
        pid = os.fork()
        if pid == 0:
            before = len(written(console))
            display.message("from the child")
            display.close()
            os._exit(0 if len(written(console)) == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        display.message("from the parent")
    assert "from the parent" in written(console)
