"""Every trainer listed in trainers/ keeps the whole contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.testing import trainers
from tests.conftest import modules_in

CASES = modules_in("contracts/trainers")
every_trainer = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@pytest.mark.covers("002-D6")
@every_trainer
def test_a_run_killed_at_any_boundary_ends_as_if_never_killed(case, tmp_path: Path) -> None:
    trainers.check_kill_anywhere(case.make, tmp_path, max_kills=5)


@every_trainer
def test_a_run_killed_again_and_again_ends_as_if_never_killed(case, tmp_path: Path) -> None:
    trainers.check_kill_chain(case.make, tmp_path, max_kills=6)


@every_trainer
def test_leaving_out_any_part_on_resume_shows_at_the_end(case, tmp_path: Path) -> None:
    inert, refusals = getattr(case, "INERT", ()), getattr(case, "REFUSALS", {})
    trainers.check_negative_controls(case.make, tmp_path, inert=inert, refusals=refusals)


@every_trainer
def test_every_attribute_that_changes_belongs_to_a_part(case, tmp_path: Path) -> None:
    trainers.check_all_state_is_declared(case.make, tmp_path)
