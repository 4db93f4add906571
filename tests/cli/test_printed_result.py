"""What a command prints at the end of a run says how exact it turned out to be."""

from __future__ import annotations

import pytest

from ludus.cli.tasks import print_result
from ludus.core.exactness import Exact
from ludus.core.runtime import Result


@pytest.mark.parametrize(
    ("word", "reasons", "line"),
    [
        (Exact.PROVED, (), "exact: proved"),
        (Exact.NO, ("it forgets",), "exact: no: it forgets"),
        (Exact.EXPECTED, (), None),
    ],
)
def test_the_last_lines_of_a_run_say_that_it_was_proved_or_why_it_is_not_exact(
    word: Exact, reasons: tuple[str, ...], line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(
        status="finished",
        reason=None,
        counters={},
        best=None,
        run_dir="runs/one",
        exact=word,
        inexact_because=reasons,
    )
    print_result(result, is_silent=True)
    said = [one for one in capsys.readouterr().out.splitlines() if one.startswith("exact")]
    assert said == ([] if line is None else [line])
