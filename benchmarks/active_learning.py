"""Learn two tables with few labels, by several strategies, in ludus and in other libraries.

Digits, and a harder table with redundant columns, rare classes, several clusters a class and wrong labels
(`_active_tables.py`), each with as many seeds as there are rounds: the split, the first labels and the first
weights. All strategies and libraries have the same of each, the same network and the same training.

The accuracy to be reached is fixed by a rule: that which uniform sampling, in ludus, has on the average of
the seeds with its whole budget. The value is how many labels a strategy needs until it first gets there, on a
straight line between two rounds; a run that never does counts one round more than the budget. A second row
says with how many seeds it needs fewer than uniform sampling with the same seed, and a third is the accuracy
on the average of all rounds.

The curves go to active-learning-curves.json in the current directory: `python -m benchmarks._plot_active
active-learning-curves.json FILE.svg` draws them.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks._active_tables import TABLES
from benchmarks._harness import Case, Role, Row, ask_child, is_installed, say, summarise

ROUNDS = 10
"""How many seeds, unless the command line says otherwise."""
CURVES = "active-learning-curves.json"
OURS, BASELINE = "ludus", "uniform"

Curve = Sequence[Sequence[float]]
Curves = dict[str, dict[str, dict[str, list[Curve]]]]
"""By table, system and strategy: a curve a seed, of labels and test accuracies."""

SYSTEMS: dict[str, tuple[Role, str, str, tuple[str, ...]]] = {
    OURS: ("ludus", "_active_ludus", "learn", ("scikit-learn",)),
    "scikit-activeml": ("peer", "_active_peers", "scikit_activeml", ("scikit-activeml",)),
    "modAL": ("peer", "_active_peers", "modal", ("modAL-python",)),
    "baal": ("peer", "_active_peers", "baal", ("baal",)),
}


def run(rounds: int) -> list[Row]:
    """Return labels to the accuracy, seeds better than uniform, and mean accuracies."""
    curves: Curves = {table: {} for table in TABLES}
    for system, (role, module, function, requires) in SYSTEMS.items():
        case = Case("active learning", system, "labels", role, f"benchmarks.{module}", function)
        if not is_installed(replace(case, requires=requires)):
            continue
        for seed in range(rounds):
            for table, found in curves.items():
                answer = ask_child(replace(case, arguments={"table": table, "seed": seed}))
                for strategy, curve in answer.items():
                    found.setdefault(system, {}).setdefault(strategy, []).append(curve)
                ends = {name: round(curve[-1][1], 4) for name, curve in answer.items()}
                say(f"seed {seed} of {rounds}: {table}, {system}: {ends}")
                Path(CURVES).write_text(json.dumps(curves))
    return [row for table in curves for row in rows_of(table, curves[table])]


def rows_of(table: str, curves: Mapping[str, Mapping[str, Sequence[Curve]]]) -> list[Row]:
    """Return the rows of one table, from a curve a seed for each system and strategy."""
    uniform = curves[OURS][BASELINE]
    target = statistics.mean(curve[-1][1] for curve in uniform)
    own = [labels_to(target, curve) for curve in uniform]
    needed: dict[Case, list[float]] = {}
    means: dict[Case, list[float]] = {}
    wins = []
    for strategy in curves[OURS]:
        for system in (one for one in curves if strategy in curves[one]):
            runs, role = curves[system][strategy], SYSTEMS[system][0]
            work = f"{table}, {strategy}: labels to {target:.1%}"
            case = Case(work, system, "labels", role, "", "")
            needed[case] = [labels_to(target, curve) for curve in runs]
            mean = replace(
                case, work=f"{table}, {strategy}: mean accuracy", unit="%", is_larger_better=True
            )
            means[mean] = [100 * statistics.mean(at[1] for at in curve) for curve in runs]
            won = tuple(float(one < other) for one, other in zip(needed[case], own, strict=False))
            work = f"{table}, {strategy}: seeds with fewer labels than uniform"
            wins.append(Row(work, system, sum(won), f"of {len(won)}", 0.0, None, values=won))
    return [*summarise(needed), *wins, *summarise(means)]


def labels_to(target: float, curve: Curve) -> float:
    """Return where the curve first reaches the accuracy, or one round after its end."""
    before: Sequence[float] | None = None
    for at in curve:
        if at[1] >= target:
            if before is None:
                return float(at[0])
            share = (target - before[1]) / (at[1] - before[1])
            return float(before[0] + share * (at[0] - before[0]))
        before = at
    return float(2 * curve[-1][0] - curve[-2][0])
