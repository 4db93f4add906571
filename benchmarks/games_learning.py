"""Learn device games, and look at the score at equal transitions, in ludus and in SB3.

PPO learns three control tasks by the env steps of the shipped configs of fused_ppo, beside SB3's PPO (with
the settings of its zoo) and ludus's own `ppo` on gymnasium's envs. DQN learns the host, and the agent, of
Hironaka's game against a random player, in fused_dqn and by SB3's DQN in Hironaka's gymnasium envs,
with the same settings, updates and transitions. The score is that of the last network: the mean return of 100
episodes, or rho over 2,000 games, from the same starts for all and of no training. A host's rho should be
high, an agent's low. A score has no ratio; the training times have, evaluation excluded.

The curves go to games-learning-curves.json in the current directory:
`python -m benchmarks._plot_learning games-learning-curves.json FILE.svg transitions score` draws them.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from benchmarks._games_learning_tasks import CONTROLS, ROLES
from benchmarks._harness import Case, Role, Row, summarise
from benchmarks._seeds import over_seeds

ROUNDS = 5
"""How many seeds, unless the command line says otherwise."""


class Outcome(TypedDict):
    """What one run returns."""

    score: float
    seconds: float
    curve: list[list[float]]


def run(rounds: int) -> list[Row]:
    """Return the scores and the training times, the rounds being seeds 0, 1, ..."""
    outcomes: dict[Case, list[Outcome]] = over_seeds(_cases(), rounds, "games-learning-curves.json")
    return _rows(outcomes)


def _cases() -> Iterator[Case]:
    """Yield each system learning each task; the seed is still missing."""
    for task, todo in CONTROLS.items():
        yield _case(task, "sb3", "peer", "sb3", "learn_env", "stable_baselines3")
        if todo.own is not None:
            yield _case(task, "ludus ppo", "reference", "ludus", "learn_env", "gymnasium")
        yield _case(task, "ludus", "ludus", "ludus", "learn_game", "gymnasium")
    for task in ROLES:
        yield _case(task, "sb3", "peer", "sb3", "learn_role", "stable_baselines3")
        yield _case(task, "ludus", "ludus", "ludus", "learn_role", "torch")


def _case(task: str, system: str, role: Role, of: str, function: str, requires: str) -> Case:
    return Case(
        work=task,
        system=system,
        unit="s",
        role=role,
        module=f"benchmarks._games_learning_{of}",
        function=function,
        arguments={"task": task},
        requires=(requires,),
    )


def _rows(outcomes: Mapping[Case, Sequence[Outcome]]) -> list[Row]:
    """Return the median score of each case over the seeds, then its training times."""
    rows = []
    for case, runs in outcomes.items():
        scores = tuple(run["score"] for run in runs)
        rows.append(
            Row(
                work=f"{case.work}, score",
                system=case.system,
                value=statistics.median(scores),
                unit="rho" if case.work in ROLES else "return",
                spread=max(scores) - min(scores),
                ratio=None,
                values=scores,
            )
        )
    times = {
        replace(case, work=f"{case.work}, training time"): [run["seconds"] for run in runs]
        for case, runs in outcomes.items()
    }
    return rows + summarise(times)
