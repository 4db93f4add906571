"""A plan must be a tree in which every place has one name."""

from __future__ import annotations

import pytest

from ludus.core import Every, PlanError, Repeat, Run, Stage
from ludus.core.cursor import describe, from_json, to_json
from ludus.core.plan import check_plan, render


def stage(name: str) -> Stage:
    return Stage(name=name, work=lambda run: None)


def tree(*body: Stage | Repeat) -> Repeat:
    return Repeat(name="train", times=1, body=body)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Repeat(name="train", times=2, body=(stage("a"),)), "runs once"),
        (tree(stage("a"), stage("a")), "two children named 'a'"),
        (tree(Repeat(name="train", times=1, body=(stage("a"),))), "inside a loop of the same name"),
        (tree(Repeat(name="b", body=(stage("a"),))), "never ends"),
        (tree(Repeat(name="b", times=1, body=())), "empty body"),
        (tree(stage("Bad Name")), "lower-case"),
        (
            tree(
                Repeat(name="b", times=1, counter="epoch", body=(stage("a"),)),
                Repeat(name="c", times=1, counter="epoch", body=(stage("a"),)),
            ),
            "both own 'epoch'",
        ),
    ],
)
def test_a_plan_in_which_a_cursor_could_get_lost_is_refused(plan: Repeat, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_plan(plan)


def test_a_plan_prints_as_an_indented_tree() -> None:
    plan = tree(
        Repeat(name="epoch", times=3, body=(stage("step"),)),
        Stage(name="test", work=lambda run: None, note="at the end"),
    )
    assert render(plan) == "train\n  epoch x 3\n    step\n  test (at the end)"


def test_a_cursor_survives_json_and_reads_as_people_say_it() -> None:
    plan = tree(Repeat(name="epoch", times=3, body=(stage("step"),)))
    rows = [["train", 0, 1], ["epoch", 2, 3], ["step", 0, None]]
    cursor = from_json(rows, plan)
    assert to_json(cursor) == rows
    assert describe(cursor) == "train 0, epoch 2, step 0"


@pytest.mark.parametrize(
    "rows",
    [
        [["train", 0, 1], ["epochs", 0, None]],
        [["train", 0, 1], ["epoch", -1, None]],
        [["train", 0, 1], ["epoch", 0]],
        [["train", 0, 1], ["epoch", 0, "x"]],
        [["train", 0, 1], ["epoch", 0, 3], ["step", 0, None], ["more", 0, None]],
        "train",
    ],
)
def test_a_cursor_that_does_not_fit_the_plan_is_refused(rows) -> None:
    plan = tree(Repeat(name="epoch", times=3, body=(stage("step"),)))
    with pytest.raises(PlanError):
        from_json(rows, plan)


@pytest.mark.covers("001-D10")
def test_a_cadence_is_due_once_for_each_multiple_crossed_and_never_at_zero() -> None:
    run = Run()
    cadence, never = Every(10, "env_steps"), Every(0, "env_steps")
    due = []
    for value in (0, 4, 9, 10, 10, 12, 31, 39, 40):
        run.counters["env_steps"] = value
        due.append(cadence.is_due(run))
        assert not never.is_due(run)
    assert due == [False, False, False, True, False, False, True, False, True]


def test_a_cadence_of_an_unknown_counter_is_refused() -> None:
    with pytest.raises(PlanError, match="'env_steps'"):
        Every(1, "env_step")
