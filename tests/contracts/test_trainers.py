"""Every trainer listed in trainers/ keeps the whole contract.

Each is killed at its first boundary, its last, and two between. Chains of kills and negative controls are
those of the toys and of one trainer of each family; those of its siblings, and more kills, are in
`make faults`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.testing import trainers
from tests.conftest import modules_in

CASES = modules_in("contracts/trainers")
FIRST_OF_FAMILY = (
    "supervised", "active", "dqn", "ppo", "fused_dqn", "fused_ppo", "vanilla_ppo", "solo_agent",
    "pure_text_ei", "text_tuning",
)  # fmt: skip
ORDINARY = [name for name in CASES if name in FIRST_OF_FAMILY or name.startswith("toy_")]


def case_of(name: str, *, is_slow: bool) -> Any:
    return pytest.param(CASES[name], id=name, marks=pytest.mark.slow if is_slow else ())


every_trainer = pytest.mark.parametrize("case", [case_of(name, is_slow=False) for name in CASES])
siblings_are_slow = pytest.mark.parametrize(
    "case", [case_of(name, is_slow=name not in ORDINARY) for name in CASES]
)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """Return a function that returns the folder of a case: the run that nobody kills is made once."""
    return functools.cache(lambda case: tmp_path_factory.mktemp("case"))


def test_there_is_a_trainer_of_every_name_here() -> None:
    assert {*FIRST_OF_FAMILY} <= {*CASES}
    assert len(ORDINARY) > len(FIRST_OF_FAMILY)


@pytest.mark.covers("002-D6")
@every_trainer
def test_a_run_killed_at_any_boundary_ends_as_if_never_killed(case, roots) -> None:
    trainers.check_kill_anywhere(case.make, roots(case), max_kills=3)


@pytest.mark.slow
@every_trainer
def test_a_run_killed_at_many_boundaries_ends_as_if_never_killed(case, roots) -> None:
    trainers.check_kill_anywhere(case.make, roots(case) / "many")


@siblings_are_slow
def test_a_run_killed_again_and_again_ends_as_if_never_killed(case, roots) -> None:
    trainers.check_kill_chain(case.make, roots(case), max_kills=6)


@siblings_are_slow
def test_leaving_out_any_part_on_resume_shows_at_the_end(case, roots) -> None:
    inert, refusals = getattr(case, "INERT", ()), getattr(case, "REFUSALS", {})
    trainers.check_negative_controls(case.make, roots(case), inert=inert, refusals=refusals)


@every_trainer
def test_every_attribute_that_changes_belongs_to_a_part(case, roots) -> None:
    trainers.check_all_state_is_declared(case.make, roots(case))
