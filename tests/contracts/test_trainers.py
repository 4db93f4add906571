"""Every trainer listed in trainers/ keeps the whole contract."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.testing import trainers
from tests.conftest import modules_in

CASES = modules_in("contracts/trainers")
every_trainer = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """Return a function that returns the folder of a case: the run that nobody kills is made once."""
    return functools.cache(lambda case: tmp_path_factory.mktemp("case"))


@pytest.mark.covers("002-D6")
@every_trainer
def test_a_run_killed_at_any_boundary_ends_as_if_never_killed(case, roots) -> None:
    trainers.check_kill_anywhere(case.make, roots(case), max_kills=5)


@every_trainer
def test_a_run_killed_again_and_again_ends_as_if_never_killed(case, roots) -> None:
    trainers.check_kill_chain(case.make, roots(case), max_kills=6)


@every_trainer
def test_leaving_out_any_part_on_resume_shows_at_the_end(case, roots) -> None:
    inert, refusals = getattr(case, "INERT", ()), getattr(case, "REFUSALS", {})
    trainers.check_negative_controls(case.make, roots(case), inert=inert, refusals=refusals)


@every_trainer
def test_every_attribute_that_changes_belongs_to_a_part(case, roots) -> None:
    trainers.check_all_state_is_declared(case.make, roots(case))
