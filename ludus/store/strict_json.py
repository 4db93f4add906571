"""Strict JSON: reading is bounded, and only numbers that JSON has are written."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ludus.core.errors import CheckpointError

MAX_DEPTH = 60
MAX_CONTAINERS = 400_000

# A string that never ends is matched to the end at once; retrying at each quote would be quadratic.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def one_line(tree: object) -> str:
    """Return the tree as one line of JSON for other programs; NaN and inf become "nan", "inf" or "-inf"."""
    return json.dumps(_finite(tree), allow_nan=False)


def _finite(tree: object) -> Any:
    if isinstance(tree, dict):
        return {str(key): _finite(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_finite(value) for value in tree]
    if isinstance(tree, float) and not math.isfinite(tree):
        return str(float(tree))
    return tree


def dump_json(tree: object) -> bytes:
    """Return the tree as JSON text, always the same bytes for the same tree."""
    return json.dumps(tree, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def check_bounds(data: bytes, *, source: str) -> None:
    """Raise CheckpointError for JSON too deep or too large to be read back safely."""
    bare = _STRING.sub(b"", data)
    if bare.count(b"[") + bare.count(b"{") > MAX_CONTAINERS:
        raise CheckpointError(
            f"{source}: more than {MAX_CONTAINERS} lists and mappings; keep long records in arrays"
        )
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise CheckpointError(f"{source}: nested more than {MAX_DEPTH} deep")


def parse_json(data: bytes, *, source: str) -> Any:
    """Parse JSON that may be hostile: bounded depth, no duplicate keys, no NaN."""
    check_bounds(data, source=source)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def finite(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text[:40]} is too large a number")
        return value

    try:
        return json.loads(data, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: not readable as JSON: {error}") from None
