"""Fault 1: SIGKILL at every named point of the writer; the resumed run ends with the same bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.small_run import ending, left_behind
from tests.faults.warm import WarmProcess

POINTS = [
    "segments",
    "made",
    "state",
    "tensors",
    "manifest",
    "filled",
    "renamed",
    "verified",
    "collecting",
    "collected",
    "model made",
    "model filled",
    "model renamed",
    "publish made",
    "publish filled",
    "publish renamed",
]


@pytest.fixture(scope="module")
def passes(warm: WarmProcess, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often an unbroken run passes each point."""
    code, output = warm.run("list_points", root=str(tmp_path_factory.mktemp("points")))
    assert code == 0, output
    return Counter(output.splitlines())


def test_these_are_all_the_points_of_the_writer(passes: Counter[str]) -> None:
    assert set(passes) == set(POINTS)


@pytest.mark.covers("000-S4", "002-D5")
@pytest.mark.parametrize(
    "moment", ["first", pytest.param("middle", marks=pytest.mark.slow), "last"]
)
@pytest.mark.parametrize("point", POINTS)
def test_a_run_killed_inside_the_writer_ends_as_if_never_killed(
    point: str,
    moment: str,
    passes: Counter[str],
    warm: WarmProcess,
    right_ending: dict[str, Any],
    tmp_path: Path,
) -> None:
    count = {"first": 1, "middle": (passes[point] + 1) // 2, "last": passes[point]}[moment]
    code, output = warm.run("die_at", root=str(tmp_path), point=point, count=count)
    assert code == -9, output
    code, output = warm.run("go", root=str(tmp_path))
    assert code == 0, output
    assert ending(tmp_path / "run") == right_ending
    assert left_behind(tmp_path / "run") == []


def test_a_run_killed_again_and_again_inside_the_writer_ends_as_if_never_killed(
    warm: WarmProcess, right_ending: dict[str, Any], tmp_path: Path
) -> None:
    for point in ("filled", "state", "renamed", "model filled", "publish made", "collecting"):
        assert warm.run("die_at", root=str(tmp_path), point=point, count=1)[0] == -9
    code, output = warm.run("go", root=str(tmp_path))
    assert code == 0, output
    assert ending(tmp_path / "run") == right_ending
