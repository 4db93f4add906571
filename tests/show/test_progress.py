"""How far a run is, and the bars of a trainer's own phases."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ludus.core.cursor import Frame
from ludus.core.errors import LudusError
from ludus.core.loop import walk
from ludus.core.plan import Repeat, Stage
from ludus.core.run import Run
from ludus.show.display import Display, make_display
from ludus.show.progress import IterationContext, Odometer, attach_progress_bar, total_iterations


def nothing(run: Run) -> None:
    return None


def a_plan(num_epochs: int = 30) -> Repeat:
    step = Repeat(name="step", times=23, body=(Stage(name="update", work=nothing),))
    return Repeat(
        name="train", times=1, body=(Repeat(name="epoch", times=num_epochs, body=(step,)),)
    )


def a_run(*frames: tuple[str, int, int | None]) -> Run:
    run = Run()
    run.cursor = [Frame(*frame) for frame in frames]
    return run


MIDWAY = (("train", 0, 1), ("epoch", 2, 30), ("step", 17, 23))


def test_the_fraction_of_a_run_nests_the_fractions_of_its_loops():
    place = Odometer(a_plan()).read(a_run(*MIDWAY))
    assert place.fraction == pytest.approx((2 + 17 / 23) / 30)


def test_a_loop_between_rounds_counts_rounds_done_and_an_open_round_counts_as_reached():
    place = Odometer(a_plan()).read(a_run(*MIDWAY))
    assert [(loop.name, loop.reached, loop.total) for loop in place.loops] == [
        ("epoch", 3, 30),
        ("step", 17, 23),
    ]


def test_the_overall_fraction_is_unknown_inside_an_endless_loop():
    plan = Repeat(
        name="train",
        times=1,
        body=(
            Repeat(
                name="episode",
                until=lambda run: False,
                body=(Repeat(name="move", times=4, body=(Stage(name="act", work=nothing),)),),
            ),
        ),
    )
    run = a_run(("train", 0, 1), ("episode", 5, None), ("move", 2, 4))
    place = Odometer(plan).read(run)
    assert place.fraction is None
    assert place.left is None
    assert [loop.fraction for loop in place.loops] == [None, 0.5]


def test_an_endless_loop_inside_a_loop_of_one_round_is_just_as_unknown():
    episode = Repeat(
        name="episode", until=lambda run: False, body=(Stage(name="act", work=nothing),)
    )
    plan = Repeat(name="train", times=1, body=(Repeat(name="match", times=1, body=(episode,)),))
    run = a_run(("train", 0, 1), ("match", 0, 1), ("episode", 5, None))
    assert Odometer(plan).read(run).fraction is None


def test_the_fraction_falls_only_where_a_loop_first_tells_its_rounds():
    test_loop = Repeat(
        name="test", times=lambda run: 9, body=(Stage(name="examine", work=nothing),)
    )
    epoch = Repeat(
        name="epoch",
        times=4,
        body=(
            Stage(name="shuffle", work=nothing),
            Repeat(name="step", times=lambda run: 5, body=(Stage(name="update", work=nothing),)),
            Stage(name="validate", work=nothing),
        ),
    )
    plan = Repeat(name="train", times=1, body=(epoch, test_loop, Stage(name="save", work=nothing)))
    odometer, seen = Odometer(plan), []
    walk(plan, Run(), {}, [lambda run: seen.append(odometer.read(run).fraction)], nothing)
    # Two loops tell their rounds only when they open, so the bar may fall there, once each.
    falls = [index for index in range(1, len(seen)) if seen[index] < seen[index - 1]]
    assert len(falls) <= 2
    assert seen[0] < 0.1
    assert seen[-1] == 1.0


def test_a_loop_about_to_learn_its_rounds_has_done_none_of_them():
    step = Repeat(name="step", times=lambda run: 5, body=(Stage(name="update", work=nothing),))
    plan = Repeat(name="train", times=1, body=(step,))
    assert Odometer(plan).read(a_run(("train", 0, 1), ("step", 0, None))).fraction == 0.0


def test_the_time_left_of_a_resumed_run_is_measured_from_where_it_took_up():
    now = 0.0
    odometer = Odometer(a_plan(10), clock=lambda: now)
    odometer.open()
    odometer.begin(a_run(("train", 0, 1), ("epoch", 5, 10)))
    now = 20.0
    place = odometer.read(a_run(("train", 0, 1), ("epoch", 6, 10)))
    assert place.left == pytest.approx(80.0)
    assert place.elapsed == 20.0


def test_a_run_that_ended_is_all_done_and_one_that_was_stopped_is_as_far_as_it_came():
    run, odometer = a_run(*MIDWAY), Odometer(a_plan())
    run.stop_reason = "patience ran out"
    odometer.read(run)
    run.cursor, run.is_finished = [], True
    place = odometer.read(run)
    assert (place.fraction, place.doing) == (
        pytest.approx((2 + 17 / 23) / 30),
        "stopped: patience ran out",
    )
    run.stop_reason = None
    place = odometer.read(run)
    assert (place.fraction, place.doing, place.is_over) == (1.0, "finished", True)


def test_a_stage_that_runs_after_the_stop_is_no_progress():
    seen = []

    def update(run: Run) -> None:
        if run.round("epoch") == 4:
            run.stop("the target is reached")

    def measure(run: Run) -> None:
        seen.append(display._place().fraction)

    epoch = Repeat(name="epoch", times=9, body=(Stage(name="update", work=update),))
    test = Stage(name="test", work=measure, always=True)
    plan = Repeat(name="train", times=1, body=(epoch, test))
    run, display = Run(), make_display("none", {}, plan)
    walk(plan, run, {}, [display], nothing)
    # Five of nine epochs, and the test is the tenth stage of the run.
    place = display._place()
    assert [*seen, place.fraction] == pytest.approx([5 / 10, 5 / 10])
    assert (place.left, place.is_over) == (0.0, True)


def test_a_run_in_its_last_hooks_is_as_far_as_its_loops_came():
    run, places = Run(), []

    def collect(run: Run) -> None:
        run.counters["env_steps"] += 8

    epoch = Repeat(
        name="epoch",
        until=lambda run: run.counters["env_steps"] >= 20,
        goal=("env_steps", 20),
        body=(Stage(name="collect", work=collect),),
    )
    plan = Repeat(name="train", times=1, body=(epoch,))
    odometer = Odometer(plan)
    walk(plan, run, {"after_train": (lambda: places.append(odometer.read(run)),)}, [], nothing)
    loops = [(loop.name, loop.reached, loop.total) for loop in places[0].loops]
    assert (places[0].fraction, loops) == (1.0, [("env_steps", 24, 20)])


@pytest.mark.parametrize(
    ("how", "fraction", "doing"),
    [
        (None, 1.0, "finished"),
        ("stop", None, "stopped: the target is reached"),
        ("leave", 1.0, "finished"),
    ],
)
def test_the_last_frame_of_a_run_says_how_it_ended(how: Any, fraction: float | None, doing: str):
    """By its own length, by a target or by patience, with a stage left after the loop or without."""

    def ends(run: Run) -> None:
        if how == "stop":
            run.stop("the target is reached")
        if how == "leave":
            run.leave("epoch", "patience ran out")

    body = (Repeat(name="epoch", times=3, body=(Stage(name="update", work=ends),)),)
    for more in ((), (Stage(name="test", work=nothing, always=True),)):
        plan = Repeat(name="train", times=1, body=(*body, *more))
        run, odometer = Run(), Odometer(plan)
        places = [odometer.read(run)]
        last = {
            "after_train": (lambda at=(odometer, run, places): at[2].append(at[0].read(at[1])),)
        }
        walk(plan, run, last, [], nothing)
        assert [place.fraction for place in places] == [None, fraction]
        assert places[-1].doing == doing


def test_a_cursor_of_another_plan_is_read_as_far_as_it_fits():
    place = Odometer(a_plan()).read(a_run(("train", 0, 1), ("round", 1, 2), ("step", 0, 1)))
    assert place.loops == ()
    assert place.fraction == 0.0


class Phased:
    num_train, num_test = 3, 2

    def __init__(self, display: Display | None = None) -> None:
        self.display = display
        self.seen: list[Any] = []

    @property
    def explosive(self) -> int:
        raise AssertionError("no property may be evaluated")

    @attach_progress_bar(lambda self: self.num_train)
    def run_train_loop(self, iteration_context: IterationContext, suffix: str = "") -> str:
        iteration_context.set_description("Training")
        for _ in range(iteration_context.num_iterations):
            iteration_context.step()
            self.seen.append(getattr(self.display, "_phase", None))
        return "trained" + suffix

    @attach_progress_bar(lambda self: self.num_test)
    def run_test_loop(self, *, iteration_context: IterationContext) -> int:
        return iteration_context.num_iterations


class Longer(Phased):
    num_train = 10

    @attach_progress_bar(lambda self: self.num_train)
    def run_train_loop(self, iteration_context: IterationContext, suffix: str = "") -> str:
        return "longer " + super().run_train_loop(iteration_context, suffix)

    @attach_progress_bar(lambda self: 100)
    def run_warm_up(self, context: IterationContext) -> None: ...

    train = run_train_loop


def test_a_decorated_method_is_called_without_its_context():
    assert Phased().run_train_loop(suffix="!") == "trained!"
    assert Phased().run_train_loop("!") == "trained!"
    assert Phased().run_test_loop() == 2


@pytest.mark.covers("002-M6")
def test_a_phase_is_shown_by_the_display_and_taken_away_after():
    display = make_display("rich", {}, a_plan(), console=Console(file=io.StringIO()))
    trainer = Phased(display)
    trainer.run_train_loop()
    assert trainer.seen == [("Training", 1, 3), ("Training", 2, 3), ("Training", 3, 3)]
    assert display._phase is None


def test_a_plain_display_writes_a_phase_once_it_has_got_somewhere():
    file = io.StringIO()
    Phased(make_display("plain", {}, a_plan(), console=Console(file=file))).run_train_loop()
    assert file.getvalue() == "Training 1/3\n"


def test_an_attribute_that_is_no_display_is_left_alone():
    trainer = Phased()
    trainer.display = "rich"  # type: ignore[assignment]
    assert trainer.run_train_loop() == "trained"


@pytest.mark.covers("002-M6", "002-D9")
def test_the_total_counts_each_phase_of_the_class_once():
    assert total_iterations(Phased()) == 5
    assert total_iterations(Longer()) == 10 + 2 + 100


def test_an_override_may_pass_its_context_on():
    assert Longer().run_train_loop() == "longer trained"


def test_a_phase_without_a_context_is_refused_where_it_is_written():
    with pytest.raises(LudusError, match="takes no iteration_context"):
        attach_progress_bar(lambda self: 1)(lambda self: None)


@pytest.mark.parametrize("answer", [-1, 2.5, None])
def test_a_phase_needs_a_whole_number_of_iterations(answer: Any):
    class Wrong:
        @attach_progress_bar(lambda self: answer)
        def run(self, iteration_context: IterationContext) -> None: ...

    with pytest.raises(LudusError, match="whole number"):
        Wrong().run()
    with pytest.raises(LudusError, match="whole number"):
        total_iterations(Wrong())
