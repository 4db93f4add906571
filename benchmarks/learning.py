"""Learn small control tasks, and look at the return at equal env steps, in ludus and in SB3.

Every task (`_learning_tasks.py`) is learned with as many seeds as there are rounds. At the end of
its budget a run is evaluated: the mean return of 100 episodes without exploration. CartPole is also
evaluated at every twentieth of the budget, and the training time, evaluation excluded, is taken
until the mean return is 475 or more. The time is that of the runs that came to it, so it has to be
read with their number.

A return may be negative, so returns have no ratio. The curves, the mean return of the latest
training episodes by env steps, go to learning-curves.json in the current directory.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from benchmarks._harness import Case, Role, Row, summarise
from benchmarks._learning_tasks import TASKS
from benchmarks._seeds import over_seeds

ROUNDS = 5
"""How many seeds, unless the command line says otherwise."""


class Outcome(TypedDict):
    """What one run returns."""

    final_return: float
    seconds_to_goal: float | None
    curve: list[list[float]]


def run(rounds: int) -> list[Row]:
    """Return the final returns and the times to the goal, the rounds being seeds 0, 1, ..."""
    cases = [
        case
        for task, todo in TASKS.items()
        for case in (
            _case(task, "sb3", "peer", "benchmarks._learning_sb3", ("stable_baselines3",)),
            _case(task, "ludus", "ludus", "benchmarks._learning_ludus", ("gymnasium",)),
        )
        if todo.kind != "iqn" or case.system == "ludus"
    ]
    outcomes: dict[Case, list[Outcome]] = over_seeds(cases, rounds, "learning-curves.json")
    return _return_rows(outcomes) + _goal_rows(outcomes)


def _case(task: str, system: str, role: Role, module: str, requires: tuple[str, ...]) -> Case:
    """Return the case of one system learning one task; the seed is still missing."""
    return Case(
        work=task,
        system=system,
        unit="s",
        role=role,
        module=module,
        function="learn",
        arguments={"task": task},
        requires=requires,
    )


def _return_rows(outcomes: Mapping[Case, Sequence[Outcome]]) -> list[Row]:
    """Return the median over the seeds of the mean return at the end of each task."""
    rows = []
    for case, runs in outcomes.items():
        returns = tuple(run["final_return"] for run in runs)
        rows.append(
            Row(
                work=f"{case.work}, return after {TASKS[case.work].num_steps:,} steps",
                system=case.system,
                value=statistics.median(returns),
                unit="return",
                spread=max(returns) - min(returns),
                ratio=None,
                values=returns,
            )
        )
    return rows


def _goal_rows(outcomes: Mapping[Case, Sequence[Outcome]]) -> list[Row]:
    """Return, for each task with a goal, how many runs came to it and after what training time."""
    rows = []
    times: dict[Case, list[float]] = {}
    for case, runs in outcomes.items():
        goal = TASKS[case.work].goal
        if goal is None:
            continue
        seconds = [run["seconds_to_goal"] for run in runs]
        reached = [time for time in seconds if time is not None]
        rows.append(
            Row(
                work=f"{case.work}, runs that came to {goal:g}",
                system=case.system,
                value=len(reached),
                unit=f"of {len(runs)}",
                spread=0.0,
                ratio=None,
            )
        )
        if reached:
            times[replace(case, work=f"{case.work}, training time to {goal:g}")] = reached
    return rows + summarise(times)
