"""Every strategy asks the same questions in a run that was killed and taken up again.

One of each sort is tried at every change, by what it looks at and draws; the others in `make faults`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import ludus
from ludus.config import families
from ludus.testing import trainers
from tests.active.strategies.small import STRATEGIES, small

SORTS = {
    "draws rows alone": "uniform",
    "a score of probabilities": "margin",
    "a score of Monte Carlo dropout": "bald",
    "a score of a committee": "committee_kl",
    "rows drawn one by one, by gradients": "badge",
    "rows chosen from clusters of features": "typiclust",
}


def test_every_strategy_there_is_is_tried() -> None:
    # That of another library, which need not be there, is tried in tests/active/adapters.
    assert sorted(families.listed("strategy")) == sorted([*STRATEGIES, "skactiveml"])
    assert {*SORTS.values()} <= {*STRATEGIES}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in SORTS.values() else pytest.mark.slow)
        for kind in STRATEGIES
    ],
)
def test_a_run_of_every_strategy_that_is_killed_ends_as_if_it_never_was(
    kind: str, tmp_path: Path
) -> None:
    config = small(kind, max_rounds=3, max_epochs=1, evaluate_every_epochs=0)
    trainers.check_kill_anywhere(lambda: ludus.build_trainer(config), tmp_path, max_kills=3)
