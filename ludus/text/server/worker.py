"""Worker process of fine-tuning jobs: runs one after the other, with everything imported once."""

from __future__ import annotations

from typing import Any

from ludus.process.child_main import Answer, Handler


def handlers() -> dict[str, Handler]:
    """Return the requests that this process handles."""
    return {"tune": _tune, "stop": lambda header, pieces: None}


def _tune(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    raise NotImplementedError
