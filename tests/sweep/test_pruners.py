"""Pruners decide from curves alone, as Optuna's do from their trials."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import optuna
import pytest

from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from ludus.judge.directions import Direction
from ludus.sweep.curve import MetricCurve, Point
from ludus.sweep.pruner import Past, Pruner
from ludus.sweep.seed_pruner import SeedPruner
from tests.sweep.small import ASHA

OPT = "opt_steps"


def pruner(mode: Direction = "max", **section: Any) -> Any:
    cls = find("pruner", section["kind"])
    return cls(validate(cls.Config, section, source="x"), mode=mode, seed=0)


def curve(*values: float, every: int = 1) -> MetricCurve:
    return MetricCurve([Point({OPT: every * (i + 1)}, value) for i, value in enumerate(values)])


def past(*curves: MetricCurve, is_complete: bool = True) -> list[Past]:
    return [Past(number, one, is_complete) for number, one in enumerate(curves)]


def ended_at(judge: Pruner, number: int, whole: MetricCurve, others: Sequence[Past]) -> int | None:
    """Return after how many values a run is ended; None if it comes to its end."""
    for count in range(1, len(whole.points) + 1):
        if judge.reason(number, whole.up_to(count), others) is not None:
            return count
    return None


def simulate(judge: Pruner, oracle: Any, mode: Direction, *, seed: int, steps: int) -> int:
    """Let trials run one after the other under both pruners; return how many were ended."""
    chance, others, num_ended = random.Random(seed), list[Past](), 0
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=f"{mode}imize", pruner=oracle)
    for number in range(40):
        top, trial = chance.random(), study.ask()
        sign = 1 if mode == "max" else -1
        whole = curve(*[sign * (top * (i + 1) + 0.3 * chance.random()) for i in range(steps)])
        expected = None
        for step, point in enumerate(whole.points, start=1):
            trial.report(point.value, step)
            if trial.should_prune():
                expected = step
                break
        found = ended_at(judge, number, whole, others)
        assert found == expected
        num_ended += found is not None
        is_whole = found is None
        others.append(Past(number, whole if is_whole else whole.up_to(found), is_whole))
        state = optuna.trial.TrialState.COMPLETE if is_whole else optuna.trial.TrialState.PRUNED
        study.tell(trial, whole.points[-1].value if is_whole else None, state=state)
    return num_ended


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("seed", range(3))
def test_asha_decides_as_optunas_successive_halving(mode: Direction, seed: int) -> None:
    ours = pruner(mode, kind="asha", counter=OPT, first_rung=2, reduction=3)
    theirs = optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=3)
    assert simulate(ours, theirs, mode, seed=seed, steps=20) > 15


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("seed", range(3))
def test_the_median_rule_decides_as_optunas(mode: Direction, seed: int) -> None:
    ours = pruner(mode, kind="median", counter=OPT, warmup=4, startup_trials=5)
    theirs = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=4)
    assert simulate(ours, theirs, mode, seed=seed, steps=12) > 8


def test_asha_lets_the_best_third_go_on_at_each_rung() -> None:
    judge = pruner(**{**ASHA, "reduction": 3})
    others = past(*[curve(0, value, 0) for value in (1.0, 2.0, 3.0, 4.0, 5.0)])
    assert judge.reason(9, curve(0, 4.5), others) is None  # 2 of 6, and 6 // 3 go on
    assert judge.reason(9, curve(0, 3.5), others) == "asha: 3 of 6 at opt_steps 2, where 2 go on"
    # Between two rungs nothing is compared, nor before the first.
    assert judge.reason(9, curve(0, 3.5, -9), others) is None
    assert judge.reason(9, curve(-9), others) is None


def test_runs_that_log_at_other_steps_are_compared_by_their_first_value_from_the_rung_on() -> None:
    judge = pruner(**ASHA)
    others = past(curve(1.0, 9.0, every=3), curve(2.0, every=2))
    assert judge.reason(9, curve(0.5, every=3), others) is not None
    assert judge.reason(9, curve(3.0, every=3), others) is None


def test_a_value_that_is_no_number_ends_a_run() -> None:
    nan = float("nan")
    assert "not a number" in str(pruner(**ASHA).reason(1, curve(nan, nan), []))
    median = pruner(kind="median", counter=OPT, warmup=0, startup_trials=1)
    assert "not a number" in str(median.reason(1, curve(nan), past(curve(1.0))))


def test_hyperband_compares_within_a_bracket_and_stricter_ones_have_more_trials() -> None:
    judge = pruner(kind="hyperband", counter=OPT, first_rung=1, last_rung=9, reduction=3)
    brackets = [judge.bracket_of(number) for number in range(600)]
    shares = [brackets.count(bracket) for bracket in range(judge.num_brackets())]
    assert judge.num_brackets() == 3
    assert shares[0] > shares[1] > shares[2] > 30
    strict, lax = brackets.index(0), brackets.index(2)
    same = [number for number in range(600) if brackets[number] == 0][1:4]
    others = [Past(number, curve(5.0, 5.0, 5.0), True) for number in same]
    assert "bracket 0: 4 of 4 at opt_steps 1" in str(judge.reason(strict, curve(1.0), others))
    assert judge.reason(lax, curve(1.0), others) is None


def test_hyperbands_last_rung_comes_after_its_first() -> None:
    with pytest.raises(ConfigError, match="'last_rung' is 2, not after 'first_rung' 2"):
        pruner(kind="hyperband", counter=OPT, first_rung=2, last_rung=2, reduction=2)


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_wilcoxon_ends_what_is_worse_on_every_seed_and_nothing_before_enough_seeds(
    mode: Direction, sign: int
) -> None:
    cls = find("seed_pruner", "wilcoxon")
    section = {"kind": "wilcoxon", "p_threshold": 0.1, "min_seeds": 3}
    judge: SeedPruner = cls(validate(cls.Config, section, source="x"), mode=mode)
    best = {seed: sign * (10.0 + seed) for seed in range(8)}
    worse = {seed: value - sign * (1 + 0.1 * seed) for seed, value in best.items()}
    assert judge.reason(dict(list(worse.items())[:2]), best) is None
    assert "worse than the best trial on 6 seeds" in str(
        judge.reason(dict(list(worse.items())[:6]), best)
    )
    better = {seed: value + sign for seed, value in best.items()}
    assert judge.reason(better, best) is None


def test_a_curve_that_a_resume_logs_again_is_no_longer() -> None:
    found = curve(1.0, 2.0, 3.0)
    found.add(Point({OPT: 2}, 7.0))
    assert [(p.counters[OPT], p.value) for p in found.points] == [(1, 1.0), (2, 7.0)]


def test_the_value_of_a_run_is_its_best_or_its_last_that_is_finite() -> None:
    found = curve(1.0, 5.0, float("inf"), 2.0)
    assert found.value_of("best", "max") == 5.0
    assert found.value_of("best", "min") == 1.0
    assert found.value_of("last", "max") == 2.0
    assert curve(1.0, float("nan")).value_of("last", "max") is None
    assert curve(float("nan")).value_of("best", "max") is None
    assert MetricCurve().value_of("last", "min") is None
