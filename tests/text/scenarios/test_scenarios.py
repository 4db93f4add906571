"""The questions of each scenario: labels that are right, splits that share nothing."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from ludus.text.rollouts.questions import QuestionOrder
from ludus.text.scenario import TextDatasets
from ludus.text.scenarios import code_validation

MAJORITY = {
    "kind": "majority", "num_letters": 11, "num_as": [3, 4, 7, 8], "num_seen": 3, "prover_accuracy": 0.8,
}  # fmt: skip
ARITHMETIC = {
    "kind": "arithmetic", "largest": 20, "num_steps": [1, 2], "largest_error": 3, "train_size": 60,
    "test_size": 20,
}  # fmt: skip
CODE = {"kind": "code_validation", "largest": 9, "train_size": 120, "test_size": 40}


def scenario(section: dict[str, Any]):
    kind = find("text_scenario", section["kind"])
    return kind(validate(kind.Config, section, source="test"))


def datasets(section: dict[str, Any], seed: int = 0) -> TextDatasets:
    return scenario(section).make_datasets(seed)


def test_the_majority_is_the_letter_that_most_of_a_string_are() -> None:
    found = datasets(MAJORITY)
    assert len(found.train) + len(found.test) == 165 + 330 + 330 + 165
    for one in (found.train, found.test):
        for letters, seen, label in zip(
            one.columns["letters"], one.columns["seen"], one.labels, strict=True
        ):
            assert label == (letters.count("a") > 5)
            assert letters.startswith(seen)
            assert len(seen) == 3
    assert not set(found.train.columns["letters"]) & set(found.test.columns["letters"])


def test_the_best_guess_from_one_letter_is_right_in_two_thirds() -> None:
    found = datasets({**MAJORITY, "num_seen": 1})
    every = [found.train, found.test]
    right = sum(
        (seen == "a") == label
        for one in every
        for seen, label in zip(one.columns["seen"], one.labels, strict=True)
    )
    assert right / sum(map(len, every)) == pytest.approx(2 / 3)


def test_provers_of_the_majority_demonstrate_what_is_right_as_often_as_configured() -> None:
    own, random = scenario(MAJORITY), Random(0)
    said = [own.demonstrate("prover", {}, 1, decides=False, random=random) for _ in range(2000)]
    assert said.count("a") / 2000 == pytest.approx(0.8, abs=0.03)
    decided = [own.demonstrate("verifier", {}, 1, decides=True, random=random) for _ in range(2000)]
    assert sum(decided) / 2000 == pytest.approx(0.5, abs=0.04)


def test_a_claim_is_right_where_the_label_says_so_and_problems_are_all_different() -> None:
    found = datasets(ARITHMETIC)
    problems = [*found.train.columns["problem"], *found.test.columns["problem"]]
    assert len(set(problems)) == 80
    for one in (found.train, found.test):
        assert sum(one.labels) == len(one) // 2
        for solution, claim, label in zip(
            one.columns["solution"], one.columns["claim"], one.labels, strict=True
        ):
            assert (solution.rpartition("= ")[2] == claim) == bool(label)


def test_solutions_follow_the_problem_step_by_step() -> None:
    found = datasets({**ARITHMETIC, "num_steps": [3]})
    for solution in found.train.columns["solution"]:
        for step in solution.split(", "):
            one, sign, other, _, result = step.split()
            a, b = int(one), int(other)
            assert {"+": a + b, "-": a - b, "*": a * b}[sign] == int(result)


@pytest.mark.covers("002-S11")
def test_a_function_is_wrong_where_the_label_says_so() -> None:
    """The library never runs a function; this test does, on its own eight tasks."""
    found = datasets({**CODE, "largest": 5, "train_size": 66, "test_size": 30})
    lists = [
        [],
        [3],
        [-4, 2, 2, 9],
        [5, 1, -1, 4, 6, -7, 3],
        [0, 0, 10, -10, 2, 4, 8],
        [1, 2, 3, 4, 5, 6],
        [-5, -2],
        [-9, -2, -6],
        *([0, k] for k in range(1, 6)),
    ]
    right: dict[str, list[Any]] = {}
    for task in code_validation._TASKS:
        for k in range(2, 6):
            row = code_validation.make_row(task, "f", k, 1, Random(0))
            right[row["asked"]] = outcomes(row["code"], lists)
    for one in (found.train, found.test):
        for asked, code, label in zip(
            one.columns["asked"], one.columns["code"], one.labels, strict=True
        ):
            assert (outcomes(code, lists) == right[asked]) == bool(label), code


def outcomes(code: str, lists: list[list[int]]) -> list[Any]:
    space: dict[str, Any] = {}
    exec(code, space)
    function = next(
        value for value in space.values() if callable(value) and hasattr(value, "__code__")
    )
    found = []
    for values in lists:
        try:
            found.append(function(list(values)))
        except Exception as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.parametrize("section", [MAJORITY, ARITHMETIC, CODE], ids=lambda one: one["kind"])
def test_the_same_seed_makes_the_same_questions(section) -> None:
    assert datasets(section, 3) == datasets(section, 3)


@pytest.mark.parametrize("section", [ARITHMETIC, CODE], ids=lambda one: one["kind"])
def test_another_seed_makes_others(section) -> None:
    assert datasets(section, 3) != datasets(section, 4)


@pytest.mark.parametrize(
    ("section", "change", "told"),
    [
        (MAJORITY, {"num_letters": 4}, "give an odd number"),
        (MAJORITY, {"num_as": [12]}, "'num_as' holds 12"),
        (MAJORITY, {"num_as": [1, 2]}, "every answer is the same"),
        (MAJORITY, {"num_seen": 12}, "'num_seen' is 12"),
        (ARITHMETIC, {"num_steps": [1, 1]}, "'num_steps' holds a number twice"),
        (CODE, {"train_size": 400}, "raise 'largest', or lower them"),
    ],
)
def test_sections_that_cannot_work_are_refused(section, change, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        scenario({**section, **change})


def test_too_many_problems_of_too_small_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="there are hardly more than"):
        datasets({**ARITHMETIC, "largest": 5, "num_steps": [1], "train_size": 100_000})


def lines(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_questions_of_a_file_have_its_columns(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", *({"q": f"{i}", "label": i % 2} for i in range(10)))
    section = {"kind": "file", "path": path, "test_path": None, "test_share": 0.3}
    found = datasets(section)
    assert (len(found.train), len(found.test)) == (7, 3)
    assert {*found.train.columns["q"], *found.test.columns["q"]} == {f"{i}" for i in range(10)}
    assert all(
        int(q) % 2 == y for q, y in zip(found.train.columns["q"], found.train.labels, strict=True)
    )
    apart = datasets({**section, "test_path": path, "test_share": 0.0})
    assert (len(apart.train), len(apart.test)) == (10, 10)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no lines"),
        ("{", "line 1: is no JSON"),
        ('{"q": "a", "label": 2}', "needs a key 'label' of 0 or 1"),
        ('{"q": 3, "label": 1}', "'q' is no text"),
        ('{"q": "a", "label": 1}\n{"r": "a", "label": 1}', "line 2: 'q' is in some lines"),
    ],
)
def test_a_damaged_file_of_questions_is_named_by_line(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        datasets({"kind": "file", "path": str(path), "test_path": None, "test_share": 0.5})


@pytest.mark.covers("002-S5")
def test_iterations_see_successive_questions_and_each_pass_all_of_them() -> None:
    order = QuestionOrder(10, 0, "text/train")
    seen = [place for number in range(5) for place in order.take(number, 4)]
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]
    assert order.take(1, 4) == seen[4:8]
    assert QuestionOrder(10, 1, "text/train").take(0, 10) != seen[:10]
