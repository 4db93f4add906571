"""What a run says of each case of hidden state, and that none ends otherwise while it is called exact."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import CheckpointError
from ludus.core.exactness import Exact
from ludus.testing.trainers import Ending, ending_of, run_trainer
from tests.faults.hidden_state import callbacks
from tests.faults.hidden_state.case import CASES, Case

assert callbacks

NUM_KILLS = 100
every_case = pytest.mark.parametrize("hidden", CASES.values(), ids=CASES.keys())


def run(hidden: Case, root: Path, name: str, *, kill_at: int | None = None) -> Any:
    """Run a case as a new process would, or go on with its run; None means that it was killed."""
    folder = root / f"{name}-files"
    folder.mkdir(exist_ok=True)
    return run_trainer(functools.partial(hidden.make, folder), root, name, kill_at=kill_at)


@every_case
def test_a_run_says_what_it_can_see_of_hidden_state_without_a_kill(
    hidden: Case, tmp_path: Path
) -> None:
    result = run(hidden, tmp_path, "unbroken")
    is_seen = hidden.found in ("watcher", "data")
    assert (result.exact is Exact.NO) == is_seen, result.inexact_because
    assert hidden.words in " ".join(result.inexact_because) or not is_seen


def test_the_catalogue_has_at_least_68_cases_and_says_why_of_each_that_is_unseen() -> None:
    assert len(CASES) >= 68
    assert all(hidden.words for hidden in CASES.values() if hidden.found == "unseen")


def outcome(hidden: Case, root: Path, name: str, unbroken: Ending, kill_at: int) -> str:
    """Return what came of a run that was killed and resumed."""
    assert run(hidden, root, name, kill_at=kill_at) is None
    try:
        result = run(hidden, root, name)
    except CheckpointError as error:
        return "refused" if "the data are others" in str(error) else str(error)
    if ending_of(root / name) == unbroken:
        return "same bytes"
    return "other bytes, " + str(result.exact)


@pytest.mark.slow
@pytest.mark.covers("000-D14")
def test_no_kill_ends_with_other_bytes_while_the_run_is_called_exact(tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    kills = 0
    while kills < NUM_KILLS:
        for hidden in CASES.values():
            root = tmp_path / f"{kills}"
            root.mkdir()
            run(hidden, root, "unbroken")
            unbroken, total = ending_of(root / "unbroken"), 7
            kill_at = 2 + kills % 4
            told = outcome(hidden, root, "killed", unbroken, min(kill_at, total))
            found.setdefault(hidden.name, []).append(told)
            kills += 1
    for name, told in found.items():
        print(f"{name:<70} {CASES[name].found:<9} {', '.join(told)}")
    wrong = [
        name
        for name, told in found.items()
        if CASES[name].found != "unseen"
        and {"other bytes, expected", "other bytes, proved"} & {*told}
    ]
    assert wrong == []
