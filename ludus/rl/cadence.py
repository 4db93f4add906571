"""How often something of an RL run is due, and how the printed plan says so."""

from __future__ import annotations


def is_due(count: int, interval: int) -> bool:
    """Return whether a counter that goes up by one stands at a multiple; 0 means never."""
    return interval > 0 and count > 0 and count % interval == 0


def every(interval: int, unit: str) -> str:
    """Return a few words for the printed plan."""
    return f"every {interval} {unit}" if interval else "never"
