"""The judge of agents: best mean return, early stopping, and the target return."""

from __future__ import annotations

from ludus.judge.divergence import DivergenceGuard
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.rl.config import AgentEvaluationConfig

METRIC = "eval/return_mean"
GUARD = DivergenceGuard(remedy="normalise observations and rewards")


def make_judge(config: AgentEvaluationConfig) -> Judge:
    """Return the judge of the mean return of evaluations."""
    return Judge(
        Score(
            "return",
            METRIC,
            "max",
            patience=config.patience,
            min_delta=config.min_delta,
            target=config.target,
        )
    )
