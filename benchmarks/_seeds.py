"""Let every case learn with several seeds, turn by turn, and keep the curves as they come."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._harness import Case, Row, ask_child, is_installed, say


def over_seeds(
    cases: Iterable[Case], rounds: int, curves_file: str, jobs: int = 1
) -> dict[Case, list[Any]]:
    """Return what each installed case answers for seeds 0, 1, ...; one that cannot answer is left out.

    An answer holds a `curve`; all curves so far are in `curves_file`, in the current directory. `jobs`
    processes learn at once: a score does not depend on what else the machine does, unlike a time.
    """
    outcomes: dict[Case, list[Any]] = {case: [] for case in cases if is_installed(case)}
    asked = [(seed, case) for seed in range(rounds) for case in outcomes]
    with ThreadPoolExecutor(jobs) as pool:
        answers = pool.map(_answer, asked)
        for (seed, case), answer in zip(asked, answers, strict=True):
            if case not in outcomes:
                continue
            if isinstance(answer, str):
                say(f"{case.work}: {case.system} is left out: {answer}")
                del outcomes[case]
                continue
            reported = {name: value for name, value in answer.items() if name != "curve"}
            say(f"seed {seed} of {rounds}: {case.work}, {case.system}: {reported}")
            outcomes[case].append(answer)
            _write_curves(outcomes, Path(curves_file))
    return outcomes


def _answer(asked: tuple[int, Case]) -> Any:
    seed, case = asked
    return ask_child(replace(case, arguments={**case.arguments, "seed": seed}))


def score_rows(outcomes: Mapping[Case, Sequence[Any]]) -> list[Row]:
    """Return the median score of each case over the seeds, and how far apart they are."""
    rows = []
    for case, runs in outcomes.items():
        scores = tuple(run["score"] for run in runs)
        rows.append(
            Row(
                work=case.work,
                system=case.system,
                value=statistics.median(scores),
                unit=case.unit,
                spread=max(scores) - min(scores),
                ratio=None,
                values=scores,
            )
        )
    return rows


def _write_curves(outcomes: dict[Case, list[Any]], path: Path) -> None:
    curves: dict[str, dict[str, list[list[list[float]]]]] = {}
    for case, runs in outcomes.items():
        curves.setdefault(case.work, {})[case.system] = [run["curve"] for run in runs]
    path.write_text(json.dumps(curves))
