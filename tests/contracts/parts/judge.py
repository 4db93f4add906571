"""The judge of evaluations: the best so far by each score, and how much patience is used up."""

from __future__ import annotations

from ludus.core import Run
from ludus.judge.judge import Judge
from ludus.judge.scores import Score

# Another best, or none, is as good.
HARMLESS = tuple(
    f"{score}/{key}"
    for score in ("host", "guest", "patient")
    for key in ("best nothing", "best/counters *", "peak nothing")
)


def make() -> Judge:
    return Judge(
        Score("host", "eval/return_mean", patience=9, min_delta=0.5),
        Score("guest", "eval/error"),
        Score("patient", "eval/error", patience=9, keeps_best=False),
    )


def use(judge: Judge) -> None:
    run = Run()
    run.boundaries = 7
    for score in (1.0, 3.0, 3.2, 2.0):
        metrics = {"eval/return_mean": score, "eval/error": -score}
        judge.update(run, metrics, lambda score: {}, counters={"opt_steps": 5})
