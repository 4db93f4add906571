"""Nested data are flattened in one way, wherever configs are compared, tabulated or logged."""

from __future__ import annotations

from ludus.config.leaves import leaves


def test_each_value_has_its_path_and_only_lists_of_sections_are_taken_apart() -> None:
    data = {"a": {"b": 1, "c": [1, None]}, "d": [{"e": True}, {"e": None}], "f": {}, "g": []}
    assert leaves(data) == {
        "a.b": 1, "a.c": [1, None], "d.0.e": True, "d.1.e": None, "f": {}, "g": []
    }  # fmt: skip
    assert leaves({}) == {}
