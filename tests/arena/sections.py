"""Small sections of arena configs, for tests."""

from __future__ import annotations

from typing import Any

GRAPHS: dict[str, Any] = {
    "kind": "graph_isomorphism",
    "sizes": [7, 8],
    "edge_probabilities": [0.4, 0.6],
    "non_isomorphic_share": 0.5,
    "wl_scores": {"score_1": 0.25, "score_2": 0.5, "more": 0.25},
    "train_size": 24,
    "validation_size": 8,
    "test_size": 12,
}
TINY: dict[str, Any] = {
    "kind": "tiny",
    "num_bits": 4,
    "num_deciding": 2,
    "num_symbols": 3,
    "train_size": 32,
    "validation_size": 8,
    "test_size": 16,
}
DIGITS: dict[str, Any] = {
    "kind": "image_classification",
    "classes_0": [0],
    "classes_1": [1],
    "patch_size": 2,
    "train_size": 20,
    "validation_size": 8,
    "test_size": 10,
}
ALWAYS = {"kind": "constant", "learns": True}
NEVER = {"kind": "constant", "learns": False}
EVEN_RATES = {"body": 1.0, "policy_head": 1.0, "value_head": 1.0, "solo_head": 1.0}


def parts(body: dict[str, Any], **changes: object) -> dict[str, Any]:
    """Return an agent made of parts, with narrow heads."""
    heads = {name: {"widths": [8]} for name in ("policy_head", "value_head", "solo_head")}
    return {
        "kind": "parts",
        "update_schedule": ALWAYS,
        "load": None,
        "body": body,
        "shares_body_of": None,
        **heads,
        "learning_rate_factors": EVEN_RATES,
        **changes,
    }
