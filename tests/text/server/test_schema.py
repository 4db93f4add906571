"""The schema at /openapi.json says what is accepted: schemathesis finds nothing."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis
import pytest

from ludus.text.server.start import ServerHandle

with warnings.catch_warnings():
    # Of the libraries that it imports.
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import CHECKS, load_all_checks

MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


def tried(operation: Any, mode: Any, num_examples: int, headers: dict[str, str]) -> set[int]:
    """Return the statuses of the answers to generated requests; raise for what breaks the schema."""
    statuses = set()
    # In a form a number is the same bytes as its text.
    is_form = operation.label == "POST /v1/files"
    excluded = [CHECKS.get_one("negative_data_rejection")] if is_form else []

    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=num_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def ask(case: Any) -> None:
        response = case.call_and_validate(headers=headers, excluded_checks=excluded)
        statuses.add(response.status_code)

    ask()
    return statuses


@pytest.mark.parametrize("num_examples", [3, pytest.param(150, marks=pytest.mark.slow)])
def test_schemathesis_finds_nothing(server: ServerHandle, num_examples: int) -> None:
    load_all_checks()
    auth = {"Authorization": f"Bearer {server.token}"}
    url = server.url.removesuffix("/v1") + "/openapi.json"
    schema = schemathesis.openapi.from_url(url, headers=auth)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 17
    statuses = set()
    for operation in operations:
        for mode in MODES:
            statuses |= tried(operation, mode, num_examples, auth)
    assert {200, 400, 404} <= statuses
