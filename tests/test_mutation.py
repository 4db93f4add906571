"""The list of lines to break fits the source as it is."""

from __future__ import annotations

import pytest

from tests.mutation.breaks import BREAKS, changed


@pytest.mark.parametrize(("path", "before", "after"), [change[1:] for change in BREAKS])
def test_each_line_to_break_stands_in_its_file_once(path: str, before: str, after: str) -> None:
    assert changed(path, before, after).count(after)
