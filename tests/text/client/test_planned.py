"""The dry run: requests, tokens and cost before anything is sent."""

from __future__ import annotations

import pytest

from ludus.text.client.planned import Planned, estimate
from tests.text.client.parts import PRICE, budget

PARTS = [
    Planned("solver", "sample", "tiny", 1000, 200_000, 50_000, 0),
    Planned("solver", "jobs", "tiny", 3, 0, 0, 400_000),
    Planned("prover", "sample", "big", 10, 1, 2, 0),
]


def test_the_parts_are_priced_and_summed() -> None:
    found = estimate(PARTS, budget(prices={"tiny": PRICE}))
    assert [cost for _, cost in found.rows] == [pytest.approx(0.3), pytest.approx(1.6), None]
    assert (found.requests, found.tokens) == (1013, 650_003)
    assert found.cost == pytest.approx(1.9)
    assert found.problems == ()
    lines = found.lines()
    assert lines[0].split() == [
        *("agent", "stage", "model", "requests", "prompt", "completion", "training", "cost")
    ]
    assert lines[1].split() == [
        "solver",
        "sample",
        "tiny",
        "1,000",
        "200,000",
        "50,000",
        "0",
        "0.3",
    ]
    assert lines[3].endswith("no price")
    assert lines[4] == "at most 1,013 requests, 650,003 tokens, cost 1.9"


def test_a_run_that_its_budget_would_stop_is_told() -> None:
    found = estimate(PARTS, budget(max_cost=1.0, max_tokens=650_002, prices={"tiny": PRICE}))
    missing, cost, tokens = found.problems
    assert "no prices of big" in missing
    assert cost == "'budget.max_cost' is 1, and the run may need 1.9; it may stop before its end"
    assert tokens.startswith("'budget.max_tokens' is 650,002")
    assert found.lines()[-3:] == [missing, cost, tokens]
