"""The list of lines to break fits the source as it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.mutation.breaks import BREAKS, changed


def misfits(changes: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return which changes cannot be made or change nothing, each in a sentence."""
    told = []
    for path, before, after in changes:
        try:
            if not changed(path, before, after).count(after):
                told.append(f"{path} does not hold {after!r} once {before!r} is changed to it")
        except SystemExit as error:
            told.append(str(error))
    return told


def test_each_line_to_break_stands_in_its_file_once() -> None:
    told = misfits(change[1:] for change in BREAKS)
    assert not told, "\n".join(told)


def test_every_line_to_break_that_does_not_stand_once_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text("a = 1\nb = 2\nb = 2\n")
    missing, fits, double = (
        (str(path), "c", "d"),
        (str(path), "a = 1", "a = 3"),
        (str(path), "b", ""),
    )
    assert misfits([missing, fits, double]) == [
        f"{path} holds 'c' 0 times, not once",
        f"{path} holds 'b' 2 times, not once",
    ]
