"""The page of origins and the tests agree: every item is there, and what is called done is shown."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
PAGE = HERE / "docs" / "origins.md"
COUNTS = {
    "000": {"M": 11, "S": 14, "D": 16},
    "001": {"M": 10, "S": 13, "D": 14},
    "002": {"M": 11, "S": 14, "D": 13},
    "003": {"M": 6, "S": 7, "D": 13},
    "004": {"M": 7, "S": 7, "D": 13},
}
"""How many items of each sort the five descriptions have."""
ITEM = re.compile(r"^- \*\*(00\d-[MSD]\d+)\*\* (.*)$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


def lines_of(text: str) -> list[tuple[str, str]]:
    """Return each item and what its line says."""
    return ITEM.findall(text)


@functools.cache
def marks_in(root: Path) -> dict[str, set[str]]:
    """Return the items that each test below a directory covers, by path::name; nothing is imported."""
    found: dict[str, set[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            items: set[str] = set()
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.covers":
                    items |= {ast.literal_eval(argument) for argument in mark.args}
            found[f"{path.relative_to(root)}::{node.name}"] = items
    return found


def problems(text: str, marks: dict[str, set[str]]) -> list[str]:
    """Return all that page and tests disagree about."""
    lines = lines_of(text)
    named = [item for item, _ in lines]
    known = {f"{s}-{k}{n}" for s, c in COUNTS.items() for k in c for n in range(1, c[k] + 1)}
    found = [f"{item} is not on the page" for item in sorted(known - set(named))]
    found += [f"{item} is on the page but no such item is known" for item in set(named) - known]
    found += [f"{item} has two lines" for item in sorted(known) if named.count(item) > 1]
    done = set()
    for item, line in lines:
        tests = TEST.findall(line)
        if not tests:
            if not line.endswith(": to come"):
                found.append(f"{item} names no test and does not say 'to come'")
            continue
        done.add(item)
        for test in tests:
            if test not in marks:
                found.append(f"{item} names {test}, which is not there")
            elif item not in marks[test]:
                found.append(f'{item} names {test}, which lacks @pytest.mark.covers("{item}")')
    for test, items in marks.items():
        found += [f"{test} covers {item}, which no one knows" for item in sorted(items - known)]
        found += [
            f"{test} covers {item}, which the page says is to come"
            for item in sorted((items & known) - done)
        ]
    return found


def test_the_page_and_the_tests_agree() -> None:
    assert problems(PAGE.read_text(), marks_in(HERE)) == []


def test_no_test_is_named_after_an_item() -> None:
    named = [test for test in marks_in(HERE) if re.search(r"00\d_[msd]\d|test_seed_00", test)]
    assert named == []


FIRST = "- **000-M1** words: `tests/test_x.py::test_one`"


@pytest.mark.parametrize(
    ("line", "marks", "problem"),
    [
        ("", {}, "000-M1 is not on the page"),
        ("- **000-M1** words: nothing", {}, "000-M1 names no test and does not say 'to come'"),
        (FIRST, {}, "000-M1 names tests/test_x.py::test_one, which is not there"),
        (FIRST, {"tests/test_x.py::test_one": set()}, "which lacks @pytest.mark.covers"),
        ("- **000-M1** words: to come", {"a": {"000-M1"}}, "which the page says is to come"),
        (FIRST, {"a": {"009-M1"}}, "a covers 009-M1, which no one knows"),
        (f"{FIRST}\n{FIRST}", {}, "000-M1 has two lines"),
        ("- **000-M12** words: to come", {}, "000-M12 is on the page but no such item is known"),
    ],
)
def test_a_disagreement_is_found(line: str, marks: dict[str, set[str]], problem: str) -> None:
    rest = [f"- **{item}** {words}" for item, words in lines_of(PAGE.read_text())]
    text = "\n".join([line, *(one for one in rest if not one.startswith("- **000-M1**"))])
    assert any(problem in found for found in problems(text, {**marks_in(HERE), **marks}))
