"""An evaluator says how good a model is now, without leaving a trace in it."""

from __future__ import annotations

from typing import Any, Protocol


class Evaluator(Protocol):
    """Anything that scores what is being trained."""

    def evaluate(self, agent: Any, /) -> tuple[float, dict[str, float]]:
        """Return the score and a record of metrics; the mode of the agent is as it was, after."""
