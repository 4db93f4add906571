"""Model selection: evaluators, scores, best models, early stopping, the guard against divergence.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.judge.async_evaluator import AsyncEvaluator
    from ludus.judge.evaluator import Evaluator
    from ludus.judge.judge import Judge, leave_loop
    from ludus.judge.scores import Score

_WHERE = {
    "AsyncEvaluator": "ludus.judge.async_evaluator",
    "Evaluator": "ludus.judge.evaluator",
    "Judge": "ludus.judge.judge",
    "Score": "ludus.judge.scores",
    "leave_loop": "ludus.judge.judge",
}

__all__ = [
    "AsyncEvaluator",
    "Evaluator",
    "Judge",
    "Score",
    "leave_loop",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
