"""Derive the seed of one component from that of the run; needs no torch."""

from __future__ import annotations

import hashlib


def derive(seed: int, name: str, counter: int = 0) -> int:
    """Return a 63-bit seed for one component; seeds of other names and counters are unrelated."""
    digest = hashlib.sha256(f"{seed}/{name}/{counter}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
