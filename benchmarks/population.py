"""Train a population against random search, at equal budget, on a task whose learning rate has to fall.

A round is a seed: of the data split, the first weights, and everything that is drawn. Random search has
eight runs with constant values, as many as the population has members; `random, cosine` has the same with a
rate that falls to 0 by a schedule chosen by hand, which the population must find by itself. The difference of
two systems is taken seed by seed, with the 95% interval of its mean by Student's t; below 0 the population is
better.

The curves, the best validation loss of all runs by epoch, go to population-curves.json in the current
directory: `python -m benchmarks._plot_learning population-curves.json OUT.svg epochs 'validation loss'`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._harness import Case, Row
from benchmarks._seeds import over_seeds, score_rows
from ludus.judge.confidence import mean_interval

ROUNDS = 5
WORK = "digits by SGD, 8 runs of 24 epochs"
UNIT = "1,000 x test loss"
SYSTEMS = ("population", "random", "random, cosine")


def run(rounds: int) -> list[Row]:
    """Return the test loss of each system's best run, and the differences."""
    cases = [
        Case(
            WORK, system, UNIT, "ludus", module="benchmarks._population_work",
            function="search", arguments={"system": system}, requires=("scikit-learn", "optuna"),
        )
        for system in SYSTEMS
    ]  # fmt: skip
    outcomes = over_seeds(cases, rounds, "population-curves.json")
    return [*score_rows(outcomes), *difference_rows(outcomes)]


def difference_rows(outcomes: Mapping[Case, Sequence[Any]]) -> list[Row]:
    """Return the mean difference of the population to each other system, with its interval in the name."""
    scores = {case.system: [one["score"] for one in found] for case, found in outcomes.items()}
    ours = scores.get("population", [])
    rows = []
    for system in SYSTEMS[1:]:
        others = scores.get(system, [])
        values = tuple(own - other for own, other in zip(ours, others, strict=True))
        if not values:
            continue
        found = mean_interval(values, confidence=0.95)
        between = (
            "one seed"
            if found.low is None or found.high is None
            else f"95%: {found.low:.1f} to {found.high:.1f}"
        )
        spread = max(values) - min(values)
        rows.append(
            Row(f"{WORK}: population less {system}", between, found.mean, UNIT, spread, None,
                values=values)
        )  # fmt: skip
    return rows
