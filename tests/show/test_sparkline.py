"""The course of a metric in one line, and the speed of a run."""

from __future__ import annotations

import math

import pytest

from ludus.show.panels import Scene
from ludus.show.progress import Place
from ludus.show.sparkline import Course, Courses, sparkline
from ludus.show.speed import Speedometer, main_speed
from tests.show.test_panels import drawn


def test_the_lowest_value_is_the_lowest_block_and_the_highest_the_highest():
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 20) == "▁▂▃▄▅▆▇█"
    assert sparkline([-5, 5], 20) == "▁█"


def test_values_that_are_all_alike_stand_in_the_middle():
    assert sparkline([3.0, 3.0, 3.0], 20) == "▄▄▄"


def test_more_values_than_cells_are_drawn_as_means():
    assert sparkline([0, 0, 4, 6, 10, 10], 3) == "▁▅█"
    assert len(sparkline(list(range(1000)), 37)) == 37


def test_a_value_that_is_not_finite_is_a_dot_and_no_value_is_nothing():
    assert sparkline([1, math.nan, math.inf, 2], 20) == "▁··█"
    assert sparkline([math.nan], 20) == "·"
    assert sparkline([], 20) == ""


def test_the_largest_numbers_have_a_course_too():
    assert sparkline([-1.7e308, 1.7e308], 20) == "▁█"


def test_a_course_of_very_many_values_keeps_its_shape_in_little_memory():
    course = Course()
    for step in range(100_000):
        course.add(step, math.sin(step / 100_000 * math.tau))
    assert 512 <= len(course.points) < 1024
    values = [value for _, value in course.points]
    assert max(values) == pytest.approx(1, abs=0.01)
    assert values.index(max(values)) / len(values) == pytest.approx(0.25, abs=0.02)
    assert [at for at, _ in course.points] == sorted(at for at, _ in course.points)


def test_a_course_that_is_thinned_holds_the_means_of_neighbours():
    course = Course()
    for step in range(4096):
        course.add(step, step % 2)
    assert {value for _, value in course.points} == {0.5}


def test_the_judged_metric_is_drawn_and_until_it_comes_the_first_with_a_direction():
    courses = Courses(["eval/return_mean"])
    courses.add({"train/entropy": 1.0, "train/loss": 2.0}, {"env_steps": 0, "opt_steps": 3})
    assert courses.points == {"train/loss": ((3, 2.0),)}
    courses.add({"train/loss": 1.0, "eval/return_mean": 9.0}, {"env_steps": 8, "opt_steps": 6})
    assert courses.points == {"eval/return_mean": ((6, 9.0),)}
    assert courses.values == {"eval/return_mean": [9.0]}


def test_a_panel_draws_the_course_of_each_judged_score():
    courses = {"eval/host/return": [1.0, 2.0, 3.0], "eval/guest/return": [3.0, 1.0]}
    lines = drawn(Scene(about={}, place=Place(), courses=courses), 80)
    assert any("score" in line and "▁▅█" in line and "eval/host/return" in line for line in lines)
    assert any("█▁" in line and "eval/guest/return" in line for line in lines)


def test_a_speed_is_that_of_the_last_seconds():
    now = 0.0
    speedometer = Speedometer(lambda: now)
    speedometer.begin({"env_steps": 1000})
    for second in range(1, 61):
        now = float(second)
        # It runs at 10 a second for half a minute, then at 1000.
        steps = 1000 + 10 * min(second, 30) + 1000 * max(0, second - 30)
        speeds = speedometer.read({"env_steps": steps})
    assert speeds["env_steps"] == pytest.approx(1000, rel=0.02)
    whole = speedometer.read({"env_steps": steps}, is_over=True)
    assert whole["env_steps"] == pytest.approx((10 * 30 + 1000 * 30) / 60)


def test_a_counter_that_moves_in_leaps_is_measured_from_leap_to_leap():
    now = 0.0
    speedometer = Speedometer(lambda: now)
    speedometer.begin({"opt_steps": 0})
    seen = []
    for second in range(1, 301):
        now = float(second)
        speeds = speedometer.read({"opt_steps": second // 60 * 600})
        seen.append(speeds.get("opt_steps", 0.0))
    assert min(seen[120:]) > 5
    assert max(seen[120:]) < 21


def test_rounds_and_epochs_have_no_speed_and_a_run_that_stands_still_has_none():
    now = 0.0
    speedometer = Speedometer(lambda: now)
    assert speedometer.read({"opt_steps": 5}) == {}
    speedometer.begin({"opt_steps": 5, "epoch": 0})
    assert speedometer.read({"opt_steps": 6}) == {}
    now = 2.0
    assert speedometer.read({"opt_steps": 9, "epoch": 1}) == {"opt_steps": 2.0}


def test_the_steps_of_envs_say_more_than_those_of_the_optimizer():
    speeds = {"opt_steps": 2.0, "examples": 64.0, "game_steps": 100.0}
    assert main_speed(speeds) == ("game_steps", 100.0)
    assert main_speed({"examples": 64.0}) == ("examples", 64.0)
    assert main_speed({}) is None


def test_the_speed_of_each_counter_stands_behind_its_count():
    scene = Scene(
        about={},
        place=Place(),
        counters={"env_steps": 12_000, "epoch": 3},
        speeds={"env_steps": 1234.5},
    )
    assert any("env_steps 12,000 (1,234/s)  epoch 3" in line for line in drawn(scene))
