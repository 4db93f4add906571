"""What a run says of each case of hidden state, and that none ends otherwise while it is called exact."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import CheckpointError
from ludus.core.exactness import Exact
from ludus.testing.differences import ending_of
from ludus.testing.trainers import count_boundaries, run_trainer
from tests.faults.hidden_state import asked, callbacks, data, envs, games
from tests.faults.hidden_state.case import CASES, Case

GROUPS = (callbacks, data, games, asked, envs)
"""The modules that add cases to the list."""
NUM_KILLS = 160
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
    is_seen = hidden.found in ("watcher", "data", "env")
    assert (result.exact is Exact.NO) == is_seen, result.inexact_because
    assert hidden.words in " ".join(result.inexact_because) or not is_seen


def test_the_catalogue_has_at_least_68_cases_and_says_why_of_each_that_is_unseen() -> None:
    assert len(CASES) >= 68
    assert all(hidden.words for hidden in CASES.values() if hidden.found == "unseen")


def outcome(hidden: Case, root: Path, share: float) -> str:
    """Return what came of a run that was killed after this share of its boundaries, and resumed."""
    run(hidden, root, "unbroken")
    unbroken, total = ending_of(root / "unbroken"), count_boundaries(root / "unbroken")
    # Two boundaries after a checkpoint, so that something was seen that is seen again.
    kill_at = min(int(total * share) // 3 * 3 + 2, total)
    assert run(hidden, root, "killed", kill_at=kill_at) is None
    try:
        result = run(hidden, root, "killed")
    except CheckpointError as error:
        return "refused" if "the data are others" in str(error) else str(error)
    is_same = ending_of(root / "killed") == unbroken
    return f"{'same' if is_same else 'other'} bytes, {result.exact}"


def is_right(hidden: Case, told: str) -> bool:
    """Return whether a run ended with the bytes it should, or was refused, or said that it may not."""
    is_told = told in ("refused", "other bytes, no", "same bytes, no")
    is_same = told in ("same bytes, expected", "same bytes, proved")
    return is_told or is_same or hidden.found == "unseen"


@pytest.mark.slow
def test_no_kill_ends_with_other_bytes_while_the_run_is_called_exact(tmp_path: Path) -> None:
    assert len(CASES) <= NUM_KILLS
    found: dict[str, list[str]] = {name: [] for name in CASES}
    for number in range(NUM_KILLS):
        name = list(CASES)[number % len(CASES)]
        root = tmp_path / str(number)
        root.mkdir()
        found[name].append(outcome(CASES[name], root, (0.5, 0.7)[number // len(CASES)]))
    for name, told in found.items():
        print(f"{name:<75} {CASES[name].found:<9} {'; '.join(told)}")
    print(Counter(hidden.found for hidden in CASES.values()))
    print(Counter(one for told in found.values() for one in told))
    wrong = {name: t for name, t in found.items() if not all(is_right(CASES[name], o) for o in t)}
    assert wrong == {}
