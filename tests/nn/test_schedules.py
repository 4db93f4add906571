"""Schedules give the numbers that their formulas give by hand, at every step."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import TypeAdapter

import ludus
from ludus.core.errors import ConfigError
from ludus.nn.schedules import Schedule, Scheduler, ScheduleSection
from ludus.testing.parts import check_part


def make(initial: float = 1.0, run_steps: int = 100, **section: Any) -> Schedule:
    config = TypeAdapter(ScheduleSection).validate_python(section)
    return Schedule(config, initial=initial, run_steps=run_steps)


@pytest.mark.covers("001-S7")
def test_a_constant_schedule_stays_at_the_initial_value() -> None:
    schedule = make(0.3, kind="constant", warmup_steps=0)
    assert [schedule(step) for step in (0, 1, 10**9)] == [0.3, 0.3, 0.3]


@pytest.mark.parametrize(
    "section",
    [
        {"kind": "constant"},
        {"kind": "exponential", "rate": 0.5, "final": 0.0},
        {"kind": "inverse", "rate": 1.0, "final": 0.0},
        {"kind": "linear", "final": 0.0, "total_steps": 10},
        {"kind": "cosine", "final": 0.0, "total_steps": 10},
    ],
)
def test_warm_up_rises_in_a_line_and_the_schedule_starts_where_it_ends(
    section: dict[str, Any],
) -> None:
    schedule = make(0.8, warmup_steps=4, **section)
    assert [schedule(step) for step in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert schedule(4) == pytest.approx(0.8)
    if section["kind"] != "constant":
        assert schedule(5) < 0.8


@pytest.mark.covers("001-S7")
def test_an_exponential_schedule_goes_by_its_rate_to_its_value() -> None:
    """It is init * rate^t + value * (1 - rate^t)."""
    schedule = make(1.0, kind="exponential", warmup_steps=0, rate=0.5, final=0.2)
    assert [schedule(t) for t in range(4)] == pytest.approx([1.0, 0.6, 0.4, 0.3])
    assert schedule(2000) == pytest.approx(0.2)
    slow = make(0.05, kind="exponential", warmup_steps=0, rate=0.97, final=0.001)
    value = 0.05
    for t in range(200):
        assert slow(t) == pytest.approx(value, rel=1e-9)
        # The slow way: the distance to the final value shrinks by the rate, step after step.
        value = 0.001 + (value - 0.001) * 0.97


@pytest.mark.covers("001-S7")
def test_an_inverse_schedule_falls_with_the_steps() -> None:
    """It is rate / (t + rate / initial_lr), with nothing to approach but zero."""
    schedule = make(0.5, kind="inverse", warmup_steps=0, rate=2.0, final=0.0)
    assert [schedule(t) for t in (0, 1, 4)] == pytest.approx([2 / 4, 2 / 5, 2 / 8])
    for t in range(50):
        assert schedule(t) == pytest.approx(2.0 / (t + 2.0 / 0.5))


@pytest.mark.parametrize("kind", ["exponential", "inverse", "linear", "cosine"])
def test_no_schedule_rises_out_of_all_proportion(kind: str) -> None:
    """A step at such a rate would leave the numbers there are, and spoil a checkpoint."""
    rate = {"rate": 0.5} if kind in ("exponential", "inverse") else {"total_steps": 10}
    section = {"kind": kind, "warmup_steps": 0, "final": 1e30, **rate}
    with pytest.raises(ConfigError, match=r"learning_rate_schedule\.final.* 1000"):
        ludus.example("dqn", learning_rate_schedule=section)


@pytest.mark.covers("001-D4")
def test_inverse_approaches_its_final_value_rather_than_ignoring_it() -> None:
    """The original's inverse schedule ignored the value it was to fall to."""
    schedule = make(0.5, kind="inverse", warmup_steps=0, rate=2.0, final=0.1)
    assert schedule(0) == pytest.approx(0.5)
    assert schedule(4) == pytest.approx(0.1 + 0.4 * 0.5)
    assert schedule(10**9) == pytest.approx(0.1, abs=1e-6)


def test_linear_goes_to_its_final_value_in_a_line_and_stays() -> None:
    schedule = make(1.0, kind="linear", warmup_steps=0, final=0.2, total_steps=4)
    assert [schedule(t) for t in range(6)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_linear_may_rise() -> None:
    schedule = make(0.0001, kind="linear", warmup_steps=0, final=1.0001, total_steps=10)
    assert schedule(5) == pytest.approx(0.5001)


def test_cosine_is_half_a_cosine_and_stays_at_its_end() -> None:
    schedule = make(1.0, kind="cosine", warmup_steps=0, final=0.0, total_steps=4)
    root = math.sqrt(0.5)
    by_hand = [1.0, (1 + root) / 2, 0.5, (1 - root) / 2, 0.0, 0.0]
    assert [schedule(t) for t in range(6)] == pytest.approx(by_hand)


def test_the_warm_up_is_part_of_the_total() -> None:
    schedule = make(1.0, kind="linear", warmup_steps=2, final=0.0, total_steps=6)
    assert [schedule(t) for t in range(7)] == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0])


def test_without_a_total_the_schedule_takes_the_whole_run() -> None:
    given = make(1.0, kind="cosine", warmup_steps=3, final=0.1, total_steps=50)
    of_run = make(1.0, 50, kind="cosine", warmup_steps=3, final=0.1, total_steps=None)
    assert [given(t) for t in range(60)] == [of_run(t) for t in range(60)]


def test_a_run_shorter_than_its_warm_up_still_has_a_schedule() -> None:
    schedule = make(1.0, 2, kind="cosine", warmup_steps=4, final=0.0, total_steps=None)
    assert [schedule(t) for t in range(2)] == pytest.approx([0.25, 0.5])


def test_a_schedule_that_is_all_warm_up_is_refused() -> None:
    section = {"kind": "linear", "warmup_steps": 10, "final": 0.0, "total_steps": 10}
    with pytest.raises(ConfigError, match=r"schedule.*warmup_steps.*leaves nothing of"):
        ludus.example("supervised").replace(learning_rate_schedule=section)


def test_piecewise_joins_its_points_in_lines_and_stays_at_the_last() -> None:
    points = [[0, 1.0], [4, 0.2], [6, 0.5]]
    schedule = make(1.0, kind="piecewise", warmup_steps=0, points=points)
    by_hand = [1.0, 0.8, 0.6, 0.4, 0.2, 0.35, 0.5, 0.5]
    assert [schedule(t) for t in range(8)] == pytest.approx(by_hand)
    assert schedule(10**9) == 0.5


def test_piecewise_begins_after_its_warm_up() -> None:
    schedule = make(1.0, kind="piecewise", warmup_steps=2, points=[[0, 1.0], [2, 0.0]])
    assert [schedule(t) for t in range(6)] == pytest.approx([0.5, 1.0, 1.0, 0.5, 0.0, 0.0])


def test_a_single_point_is_a_constant() -> None:
    schedule = make(0.3, kind="piecewise", warmup_steps=0, points=[[0, 0.3]])
    assert [schedule(t) for t in (0, 5)] == [0.3, 0.3]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([[1, 0.5]], "begin at step 1; the first point is the value at step 0"),
        ([[0, 0.5], [4, 0.4], [4, 0.1]], "go from step 4 to step 4"),
        ([[0, 0.5], [2.5, 0.4]], "has step 2.5; a step is a whole number"),
        ([[0, 0.5], [2, -0.4]], "has the value -0.4 at step 2; values are 0 to 1000"),
        ([[0, 0.5], [2, 3e38]], r"has the value 3e\+38 at step 2; values are 0 to 1000"),
        ([[0, 0.5, 1]], "points.0"),
        ([], "points"),
    ],
)
def test_points_that_make_no_schedule_are_told(points: Any, message: str) -> None:
    section = {"kind": "piecewise", "warmup_steps": 0, "points": points}
    with pytest.raises(ConfigError, match=message):
        Scheduler(section, initial=0.5, run_steps=10)


def test_a_value_that_the_points_would_ignore_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"begin at 0.5, but .* is 0.1; make them the same"):
        make(0.1, kind="piecewise", warmup_steps=0, points=[[0, 0.5], [3, 0.2]])


def test_points_may_be_anything_from_0_to_the_highest() -> None:
    points = [[0, 0.5], [1, 0.0], [2, 1e-9], [3, 1000.0]]
    section = {"kind": "piecewise", "warmup_steps": 0, "points": points}
    scheduler = Scheduler(section, initial=0.5, run_steps=10)
    assert [scheduler(step) for step in range(4)] == [value for _, value in points]


@pytest.mark.covers("001-M9")
def test_a_scheduler_is_a_function_of_the_step_that_persists_custom_data() -> None:
    section = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": 10}

    def make_scheduler() -> Scheduler:
        return Scheduler(section, initial=1.0, run_steps=10)

    def use(scheduler: Scheduler) -> None:
        visits = scheduler.data.setdefault("visits", [])
        visits.append(scheduler(len(visits)))

    check_part(make_scheduler, use)
    scheduler = make_scheduler()
    assert scheduler(5) == make(1.0, **section)(5) == pytest.approx(0.5)
    held = scheduler.data
    scheduler.load_state_dict({"data": {"note": "kept"}})
    assert held == {"note": "kept"}


def test_a_scheduler_names_a_kind_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'constant'"):
        Scheduler({"kind": "constnat", "warmup_steps": 0}, initial=1.0, run_steps=1)


@pytest.mark.parametrize(
    ("config", "highest"),
    [
        ({"kind": "constant", "warmup_steps": 3}, 0.5),
        ({"kind": "linear", "warmup_steps": 0, "final": 0.9, "total_steps": None}, 0.9),
        ({"kind": "piecewise", "warmup_steps": 0, "points": [[0, 0.5], [2, 7.0], [4, 0.1]]}, 7.0),
    ],
)
def test_a_schedule_knows_the_highest_value_it_comes_to(config: Any, highest: float) -> None:
    schedule = Scheduler(config, initial=0.5, run_steps=10)
    assert schedule.highest == highest == max(schedule(step) for step in range(11))


def test_a_cycle_that_would_not_rise_is_refused() -> None:
    cycle = {
        "kind": "one_cycle", "final": 0.0, "rising_share": 0.3, "shape": "cosine", "three_phases": False,
        "total_steps": None,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"'peak' of one_cycle is 0.5, but it starts from 1"):
        make(1.0, **cycle, peak=0.5)
    assert make(1.0, **cycle, peak=2.0)(0) == pytest.approx(1.0)
