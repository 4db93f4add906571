"""A function answers in place of people; whatever it does, no answer is lost or asked for twice."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus.active.labelling.answering import Words
from ludus.active.labelling.queries import Queries
from ludus.active.oracle import Labels
from ludus.core.errors import ConfigError, LudusError
from ludus.testing.differences import ending_of
from ludus.testing.trainers import Killed, check_effects_once, run_trainer
from tests.active.conftest import small_active, targets_of

FUNCTION = {"kind": "function", "at_once": 2}


def asking(function: Any, **changes: Any) -> Any:
    trainer: Any = ludus.build_trainer(small_active(oracle=FUNCTION, **changes))
    trainer.set_oracle(function)
    return trainer


def test_no_label_is_asked_for_twice_wherever_the_run_is_killed(tmp_path: Path) -> None:
    truth = targets_of(small_active())

    def begin() -> tuple[Any, list[str]]:
        paid: list[str] = []

        def answer(inputs: Any, rows: Sequence[int]) -> list[int]:
            paid.extend(map(str, rows))
            return [truth[row] for row in rows]

        return lambda: asking(answer, max_rounds=2, max_epochs=1), paid

    check_effects_once(begin, tmp_path)


def test_a_kill_between_two_calls_of_the_function_asks_no_row_again(tmp_path: Path) -> None:
    truth, calls = targets_of(small_active()), list[list[int]]()

    def answer(inputs: Any, rows: Sequence[int]) -> list[int]:
        if len(calls) == 2:
            calls.append([])
            raise Killed
        calls.append([*rows])
        return [truth[row] for row in rows]

    with contextlib.suppress(Killed):
        run_trainer(lambda: asking(answer), tmp_path, "killed")
    run_trainer(lambda: asking(answer), tmp_path, "killed")
    rows = [row for call in calls for row in call]
    assert len(rows) == len(set(rows)) == 14
    run_trainer(
        lambda: asking(lambda inputs, rows: [truth[row] for row in rows]), tmp_path, "whole"
    )
    assert ending_of(tmp_path / "killed") == ending_of(tmp_path / "whole")


def test_an_interrupt_is_heard_between_two_calls_and_the_run_goes_on_from_there(
    tmp_path: Path,
) -> None:
    asked: list[int] = []

    def answer(inputs: Any, rows: Sequence[int]) -> list[int]:
        asked.extend(rows)
        trainer.run.interrupted = len(asked) == 4
        return [row % 3 for row in rows]

    trainer = asking(answer)
    result = trainer.fit(root=str(tmp_path))
    assert (result.status, len(asked)) == ("interrupted", 4)
    # Nobody is waited for: the run was asked to pause.
    assert "waiting" not in (result.reason or "")
    trainer = asking(answer)
    assert trainer.fit(root=str(tmp_path), resume=True).status == "finished"
    assert len(asked) == len(set(asked)) == 14


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda inputs, rows: [0], "the oracle gave 1 labels for 2 examples"),
        (lambda inputs, rows: 3, "the oracle gave a int for 2 examples"),
        (lambda inputs, rows: None, "the oracle gave a NoneType for 2 examples"),
        (lambda inputs, rows: [0, 7], "is 7; the classes of this run are the whole numbers from 0"),
        (lambda inputs, rows: [0, None], "is None; the classes of this run"),
        (lambda inputs, rows: [True, 0], "is True; the classes of this run"),
        (lambda inputs, rows: torch.zeros(2, 3), r"is \[0.0, 0.0, 0.0\]; the classes of this run"),
        (lambda inputs, rows: 1 / 0, "the oracle failed on 2 examples, the first of them row"),
    ],
)
def test_what_is_no_answer_is_told_in_a_sentence(answer: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(LudusError, match=problem):
        asking(answer).fit(root=str(tmp_path))


def test_what_was_answered_before_a_failure_is_kept(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(inputs: Any, rows: Sequence[int]) -> Any:
        assert inputs.shape == (len(rows), 13)
        if len(asked) == 4 and "failed" not in seen:
            seen.append("failed")
            raise KeyError("gone")
        asked.extend(rows)
        return np.array([row % 3 for row in rows])

    seen: list[str] = []
    with pytest.raises(LudusError, match="KeyError: 'gone'; what it answered before is kept"):
        asking(answer).fit(root=str(tmp_path))
    asking(answer).fit(root=str(tmp_path), resume=True)
    assert len(asked) == len(set(asked)) == 14


def test_one_bad_label_of_a_call_loses_none_of_the_others(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(inputs: Any, rows: Sequence[int]) -> list[int]:
        is_first = not asked
        asked.extend(rows)
        return [7 if is_first and row == rows[1] else row % 3 for row in rows]

    def make() -> Any:
        trainer: Any = ludus.build_trainer(small_active(oracle={**FUNCTION, "at_once": 6}))
        trainer.set_oracle(answer)
        return trainer

    with pytest.raises(LudusError, match="is 7; the classes of this run"):
        make().fit(root=str(tmp_path))
    assert len(asked) == 6
    make().fit(root=str(tmp_path), resume=True)
    assert asked[6] == asked[1]
    assert len(asked) == len(set(asked)) + 1 == 15


def test_a_function_is_given_and_used_or_refused() -> None:
    with pytest.raises(ConfigError, match="no function was given; call trainer"):
        ludus.build_trainer(small_active(oracle=FUNCTION)).fit()
    trainer: Any = ludus.build_trainer(small_active())
    with pytest.raises(ConfigError, match="a int cannot answer; give a function"):
        trainer.set_oracle(3)
    trainer.set_oracle(lambda inputs, rows: rows)
    with pytest.raises(ConfigError, match="is known; set it to function"):
        trainer.fit()


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        (10**400, "a whole number of more than 15 digits"),
        (-(10**5000), "a whole number of more than 15 digits"),
        (1e300, r"1e\+300"),
        (float("inf"), "inf"),
        ("x" * 500, "'x{39}\\.\\.\\."),
    ],
    ids=["401 digits", "5001 digits", "1e300", "inf", "text"],
)
@pytest.mark.parametrize("num_classes", [None, 3])
def test_a_label_that_no_network_can_learn_is_refused_by_its_row(
    label: Any, shown: str, num_classes: int | None
) -> None:
    with pytest.raises(
        LudusError, match=rf"the label of row 7 is {shown}; (give a finite|the classes)"
    ):
        Labels(num_classes=num_classes).checked(7, label)


def test_a_label_as_large_as_may_be_is_taken_and_one_in_memory_beyond_it_is_found() -> None:
    labels = Labels(num_classes=None)
    assert labels.checked(0, -(10**15)) == -1e15
    assert labels.first_wrong(torch.tensor([1.0, 1e300], dtype=torch.float64)) == [1]


@pytest.mark.parametrize("word", ["1" * 401, "1e300", "9" * 5000], ids=len)
def test_people_who_type_such_a_label_are_told_which_it_is(word: str) -> None:
    queries = Queries(
        round=0,
        rows=[3],
        num_classes=None,
        class_names=None,
        columns=None,
        picture=None,
        inputs=None,
    )
    with pytest.raises(LudusError, match=r"the label of row 3 is .*; give a finite number between"):
        Words(queries).label(3, word)
