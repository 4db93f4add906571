"""Model selection: evaluators, scores, best models, early stopping, the guard against divergence.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.judge.async_evaluator import AsyncEvaluator as AsyncEvaluator
    from ludus.judge.divergence import DivergenceGuard as DivergenceGuard
    from ludus.judge.evaluator import Evaluator as Evaluator
    from ludus.judge.judge import Judge as Judge, leave_loop as leave_loop
    from ludus.judge.scores import Score as Score
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
