"""The judge of a single score, whose standing is the whole of its state."""

from __future__ import annotations

from ludus.core import Run
from ludus.judge.judge import Judge
from ludus.rl.config import AgentEvaluationConfig
from ludus.rl.evaluation.evaluations import METRIC, make_judge

CONFIG = AgentEvaluationConfig(
    env=None,
    more_envs={},
    episodes=1,
    envs=1,
    actions="greedy",
    max_episode_length=100,
    asynchronous=False,
    patience=9,
    min_delta=0.5,
    timeout_seconds=None,
    target=None,
)

# Another best, or none, is as good.
HARMLESS = ("best nothing", "best/counters *", "peak nothing")


def make() -> Judge:
    return make_judge(CONFIG)


def use(judge: Judge) -> None:
    run = Run()
    run.boundaries = 7
    for score in (1.0, 3.0, 3.2, 2.0):
        judge.update(run, {METRIC: score}, lambda score: {}, counters={"opt_steps": 5})
