"""What each key of a state estimation and of a distribution shift does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ludus.active.drift.estimator import Window
from ludus.config.registry import find
from ludus.core.errors import ConfigError
from tests.active.stream.streams import stream
from tests.keys.table import changes

ERRORS = "state_estimation ece, state_estimation mce"
BASELINE = {"window": 2, "deviations": 0.0, "min_rise": 0.0}


def estimator(kind: str, **keys: Any) -> Any:
    cls = find("state_estimation", kind.removeprefix("state_estimation "))
    return cls(cls.Config(kind=cls.kind, **keys))


def sure(share_right: float, confidence: float = 0.9) -> Window:
    """Return ten examples of two classes, predicted with this confidence, so many of them rightly."""
    log_probs = torch.tensor([[confidence, 1 - confidence]]).log().repeat(10, 1)
    wrong = torch.arange(10) >= round(10 * share_right)
    return Window(log_probs, wrong.long(), None)


def high(one: Any, *windows: Window) -> list[bool]:
    return [one.measure(window, torch.Generator().manual_seed(0)).is_high for window in windows]


@changes(ERRORS, "kind")
def test_the_error_that_is_named_is_measured(kind: str) -> None:
    one = estimator(kind, bins=10, baseline=BASELINE)
    both = Window(
        torch.cat([sure(0.5).log_probs, sure(1.0, 0.7).log_probs]),
        torch.cat([sure(0.5).targets, sure(1.0, 0.7).targets]), None,
    )  # type: ignore[list-item]  # fmt: skip
    found = one.measure(both, torch.Generator()).metrics
    # One bin is off by 0.4 and one by 0.3: their mean, and the larger.
    expected = {"state/ece": 0.35} if kind.endswith("ece") else {"state/mce": 0.4}
    assert found == pytest.approx(expected)


@changes(ERRORS, "bins")
def test_confidences_of_one_bin_are_taken_together(kind: str) -> None:
    both = Window(
        torch.cat([sure(0.0, 0.6).log_probs, sure(1.0, 0.9).log_probs]),
        torch.cat([sure(0.0, 0.6).targets, sure(1.0, 0.9).targets]), None,
    )  # type: ignore[list-item]  # fmt: skip
    values = [
        next(
            iter(
                estimator(kind, bins=bins, baseline=BASELINE)
                .measure(both, torch.Generator())
                .metrics.values()
            )
        )
        for bins in (1, 10)
    ]
    assert values[0] == pytest.approx(0.25)
    assert values[1] == pytest.approx(0.35 if kind.endswith("ece") else 0.6)


@changes(ERRORS, "baseline.window")
def test_a_value_is_compared_with_so_many_before_it(kind: str) -> None:
    for window in (2, 3):
        one = estimator(kind, bins=10, baseline={**BASELINE, "window": window})
        found = high(one, *[sure(0.9)] * window, sure(0.5))
        assert found == [False] * window + [True]
        assert high(estimator(kind, bins=10, baseline={**BASELINE, "window": window}),
                    *[sure(0.9)] * (window - 1), sure(0.5))[-1] is False  # fmt: skip


@changes(ERRORS, "baseline.deviations")
def test_a_high_value_is_so_many_deviations_above_the_mean(kind: str) -> None:
    # Errors of 0.1 and 0.3 before it: the mean is 0.2, the deviation 0.1414; 0.5 is 2.12 of them above.
    for deviations, is_high in ((2.0, True), (2.2, False)):
        one = estimator(kind, bins=10, baseline={**BASELINE, "deviations": deviations})
        assert high(one, sure(0.8), sure(0.6), sure(0.4))[-1] is is_high


@changes(ERRORS, "baseline.min_rise")
def test_a_high_value_exceeds_the_mean_by_so_much(kind: str) -> None:
    for rise, is_high in ((0.29, True), (0.31, False)):
        one = estimator(kind, bins=10, baseline={**BASELINE, "min_rise": rise})
        assert high(one, sure(0.8), sure(0.8), sure(0.5))[-1] is is_high


@changes("state_estimation entropy", "kind", "threshold")
def test_entropy_is_high_above_its_threshold(kind: str) -> None:
    uniform = Window(torch.zeros(3, 2).log_softmax(1), None, None)
    for threshold, is_high in ((math.log(2) - 0.01, True), (math.log(2) + 0.01, False)):
        found = estimator(kind, threshold=threshold).measure(uniform, torch.Generator())
        assert found.is_high is is_high
        assert found.metrics == pytest.approx({"state/entropy": math.log(2)})


def features(shift: float, seed: int) -> Window:
    drawn = torch.randn(40, 2, generator=torch.Generator().manual_seed(seed))
    return Window(torch.zeros(40, 2).log_softmax(1), None, drawn + shift)


@changes("state_estimation ks, state_estimation mmd", "kind", "alpha")
def test_features_have_moved_where_the_p_value_is_below_alpha(kind: str) -> None:
    more = {"permutations": 199} if kind.endswith("mmd") else {}
    name = f"state/{kind.split()[1]}_p_value"
    one = estimator(kind, alpha=0.5, **more)
    one.measure(features(0.0, 0), torch.Generator())
    p = one.measure(features(0.5, 1), torch.Generator().manual_seed(0)).metrics[name]
    assert 0.001 < p < 0.5
    for alpha, is_high in ((p * 1.01, True), (p * 0.99, False)):
        found = high(estimator(kind, alpha=alpha, **more), features(0.0, 0), features(0.5, 1))
        assert found == [False, is_high]


@changes("state_estimation mmd", "permutations")
def test_the_p_value_is_counted_over_so_many_partings(kind: str) -> None:
    for number in (9, 99):
        one = estimator(kind, alpha=0.5, permutations=number)
        one.measure(features(0.0, 0), torch.Generator())
        found = one.measure(features(9.0, 1), torch.Generator().manual_seed(0))
        assert found.metrics["state/mmd_p_value"] == pytest.approx(1 / (number + 1))


def shifted(kind: str, *steps: int, num_classes: int = 2, **keys: Any) -> list[list[float]]:
    cls = find("shift", kind.removeprefix("shift "))
    one = cls(cls.Config(kind=cls.kind, **keys))
    return [
        one.at(step, num_classes, torch.Generator().manual_seed(step)).tolist() for step in steps
    ]


@changes("shift static", "kind", "weights")
def test_a_static_stream_has_the_weights_it_is_given(kind: str) -> None:
    assert shifted(kind, 0, 9, weights=[3.0, 1.0]) == [[0.75, 0.25]] * 2
    assert shifted(kind, 0, weights=None) == [[0.5, 0.5]]


@changes("shift random_uniform", "kind")
def test_a_random_stream_is_another_at_each_step(kind: str) -> None:
    first, second, again = shifted(kind, 0, 1, 0)
    assert first == again
    assert first != second


@changes("shift hard_switch", "kind", "distributions", "period")
def test_each_distribution_holds_for_exactly_its_period(kind: str) -> None:
    ways = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]
    for period in (1, 3):
        found = shifted(kind, *range(3 * period + 1), distributions=ways, period=period)
        expected = [[1.0, 0.0]] * period + [[0.0, 1.0]] * period + [[0.5, 0.5]] * period
        assert found == [*expected, [1.0, 0.0]]


@changes("shift linear_shift", "kind", "start", "end", "period")
def test_a_linear_shift_goes_from_start_to_end_in_its_period_and_back(kind: str) -> None:
    for period in (2, 4):
        found = shifted(
            kind, *range(2 * period + 1), start=[1.0, 0.0], end=[0.0, 1.0], period=period
        )
        there = [[1 - n / period, n / period] for n in range(period + 1)]
        assert found == [*there, *there[-2::-1]]


def test_a_kind_that_is_none_is_told_with_the_nearest() -> None:
    from ludus.active.stream.config import StreamConfig
    from ludus.config.sections import validate

    with pytest.raises(
        ConfigError, match=r"no shift kind is named 'hard_swich'\. Did you mean 'hard_switch'"
    ):
        validate(StreamConfig, stream(shift={"kind": "hard_swich"}), source="test")
