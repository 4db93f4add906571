"""Seeds are a list or a range."""

from __future__ import annotations

import pytest

from ludus.config.seed_list import parse_seeds


@pytest.mark.parametrize(
    ("given", "found"),
    [("0-4", [0, 1, 2, 3, 4]), ("7-7", [7]), ("3", [3]), (3, [3]), ([2, 5], [2, 5]), (True, True)],
)
def test_a_range_is_the_list_of_its_numbers(given: object, found: object) -> None:
    assert parse_seeds(given) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [("4-0", "backwards"), ("a-b", "a range such as 0-4"), ("0-99999", "10000 are the most")],
)
def test_what_is_no_range_is_refused(given: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_seeds(given)
