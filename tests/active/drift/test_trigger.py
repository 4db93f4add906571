"""When a stream asks for retraining: baselines of earlier values, and bounds."""

import copy
import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ludus.active.drift.estimator import Baseline, BaselineConfig, Window
from ludus.active.drift.trigger import Trigger, TriggerConfig
from ludus.config.registry import find
from ludus.core.errors import LudusError
from ludus.core.states import StateError

BASELINE = {"window": 3, "deviations": 2.0, "min_rise": 0.0}


def baseline(**changes: Any) -> Baseline:
    return Baseline(BaselineConfig.model_validate({**BASELINE, **changes}))


def trigger(*estimators: dict[str, Any], after: int = 1, most: int = 2) -> Trigger:
    sections = {"estimators": [*estimators], "after_windows": after, "max_consecutive": most}
    return Trigger(TriggerConfig.model_validate(sections), seed=0)


ENTROPY = {"kind": "entropy", "threshold": 0.5}
ECE = {"kind": "ece", "bins": 10, "baseline": BASELINE}
MCE = {"kind": "mce", "bins": 10, "baseline": BASELINE}
SURE = Window(torch.tensor([[0.0, -9.0]] * 10).log_softmax(1), None, None)
UNSURE = Window(torch.zeros(10, 2).log_softmax(1), None, None)


def window(sure: float, share_right: float, count: int = 100) -> Window:
    """Return a window of this confidence and accuracy."""
    logs = torch.tensor([[sure, 1 - sure]] * count).log()
    targets = (torch.arange(count) >= share_right * count).long()
    return Window(logs, targets, None)


@pytest.mark.covers("003-D9")
def test_a_value_is_compared_with_those_before_it_and_not_with_itself() -> None:
    one = baseline(window=5, deviations=50.0)
    assert [one.update(value) for value in (1.0, 1.1, 0.9, 1.0, 1.0)] == [False] * 5
    deviation = math.sqrt(0.02 / 4)
    assert not copy.deepcopy(one).update(1 + 49.9 * deviation)
    assert copy.deepcopy(one).update(1 + 50.1 * deviation)


@pytest.mark.covers("003-D9")
def test_only_a_rise_is_high() -> None:
    one = baseline()
    for value in (1.0, 1.1, 0.9):
        one.update(value)
    assert not copy.deepcopy(one).update(-100.0)
    assert one.update(100.0)


def test_a_high_value_does_not_become_the_rule() -> None:
    one = baseline()
    for value in (1.0, 1.1, 0.9):
        one.update(value)
    assert all(one.update(9.0) for _ in range(10))
    assert one.values == [1.0, 1.1, 0.9]


def test_the_window_holds_the_latest_values_alone() -> None:
    one = baseline()
    for value in (5.0, 4.0, 3.0, 2.0, 1.0):
        one.update(value)
    assert one.values == [3.0, 2.0, 1.0]


def test_values_that_never_differ_need_a_rise_of_some_size() -> None:
    one = baseline(min_rise=0.1)
    for _ in range(3):
        one.update(0.2)
    assert not copy.deepcopy(one).update(0.29)
    assert copy.deepcopy(one).update(0.31)


@pytest.mark.covers("003-D9")
def test_after_a_reset_there_is_nothing_to_compare_with() -> None:
    one = baseline()
    for value in (1.0, 1.1, 0.9):
        one.update(value)
    one.reset()
    assert one.values == []
    assert not one.update(100.0)


@pytest.mark.covers("003-S5")
@pytest.mark.parametrize("section", [ECE, MCE])
def test_calibration_that_gets_worse_asks_for_retraining_and_better_does_not(
    section: dict[str, Any],
) -> None:
    one = trigger(section)
    for share in (0.9, 0.88, 0.91):
        assert not one.look(window(0.9, share)).retrain
    # As good as it can be: a fall is no drift.
    assert not copy.deepcopy(one).look(window(0.9, 0.9)).is_high
    verdict = one.look(window(0.9, 0.4))
    assert verdict.retrain
    assert verdict.metrics[f"state/{section['kind']}"] == pytest.approx(0.5)
    assert section["kind"] in verdict.reasons[0]


@pytest.mark.covers("003-S5")
def test_entropy_above_its_threshold_asks_for_retraining() -> None:
    one = trigger(ENTROPY)
    assert not one.look(SURE).retrain
    assert one.look(UNSURE).retrain


@pytest.mark.parametrize(
    "section",
    [{"kind": "mmd", "alpha": 0.02, "permutations": 99}, {"kind": "ks", "alpha": 0.01}],
)
def test_features_that_move_ask_for_retraining_and_a_reset_takes_a_new_reference(
    section: dict[str, Any],
) -> None:
    def at(shift: float, seed: int) -> Window:
        drawn = torch.randn(60, 3, generator=torch.Generator().manual_seed(seed))
        return Window(torch.zeros(60, 2), None, drawn + shift)

    one = trigger(section)
    assert one.look(at(0, 0)).metrics == {}
    assert not one.look(at(0, 1)).retrain
    assert one.look(at(2, 2)).retrain
    one.retrained()
    assert one.look(at(2, 3)).metrics == {}
    assert not one.look(at(2, 4)).retrain
    assert one.look(at(0, 5)).retrain


@pytest.mark.covers("003-D12")
def test_retraining_that_does_not_help_ends_after_its_bound_and_begins_again_when_all_is_well() -> (
    None
):
    one = trigger(ENTROPY, most=2)
    for _ in range(2):
        assert one.look(UNSURE).retrain
        one.retrained()
    for _ in range(5):
        verdict = one.look(UNSURE)
        assert verdict.is_spent
        assert not verdict.retrain
    one.look(SURE)
    assert one.look(UNSURE).retrain


@pytest.mark.covers("003-D12")
def test_a_window_that_was_compared_with_nothing_does_not_lift_the_bound() -> None:
    one = trigger(ECE, most=1)
    for _ in range(2):
        for share in (0.9, 0.88, 0.91):
            one.look(window(0.9, share))
        last = one.look(window(0.9, 0.3))
        if last.retrain:
            one.retrained()
    assert last.is_spent


def test_so_many_windows_in_a_row_must_be_high() -> None:
    one = trigger(ENTROPY, after=2)
    found = [one.look(seen).retrain for seen in (UNSURE, SURE, UNSURE, UNSURE)]
    assert found == [False, False, False, True]


def test_a_trigger_goes_on_from_its_state_as_if_never_stopped() -> None:
    sections = [ECE, MCE, ENTROPY, {"kind": "mmd", "alpha": 0.3, "permutations": 9}]
    whole = trigger(*sections)
    windows = []
    for seed in range(9):
        draws = torch.Generator().manual_seed(seed)
        logs = torch.randn(20, 2, generator=draws).log_softmax(1)
        targets = torch.randint(2, (20,), generator=draws)
        windows.append(Window(logs, targets, torch.randn(20, 3, generator=draws)))
    for seen in windows[:5]:
        whole.look(seen)
    other = trigger(*sections)
    other.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert [whole.look(one) for one in windows[5:]] == [other.look(one) for one in windows[5:]]


def test_a_state_of_other_estimators_is_refused() -> None:
    with pytest.raises(StateError):
        trigger(ECE).load_state_dict(trigger(MCE).state_dict())


def test_an_estimator_that_needs_what_the_stream_has_not_says_so() -> None:
    with pytest.raises(LudusError, match="the stream has none; use entropy, mmd or ks"):
        trigger(ECE).look(SURE)
    with pytest.raises(LudusError, match="compares features"):
        trigger({"kind": "ks", "alpha": 0.1}).look(SURE)


@pytest.mark.parametrize(
    ("sections", "told"), [([], "is empty"), ([ENTROPY, ENTROPY], "has entropy twice")]
)
def test_a_trigger_of_nothing_or_of_the_same_twice_is_refused(sections: Any, told: str) -> None:
    found = TriggerConfig.model_validate(
        {"estimators": sections, "after_windows": 1, "max_consecutive": 1}
    ).problems()
    assert told in " ".join(found)


def test_a_p_value_that_can_never_be_low_enough_is_refused() -> None:
    def told(alpha: float, permutations: int) -> list[str]:
        section = {"kind": "mmd", "alpha": alpha, "permutations": permutations}
        return list(find("state_estimation", "mmd").Config.model_validate(section).problems())

    assert "0.01 at least" in " ".join(told(0.01, 99))
    assert told(0.01, 100) == []


@pytest.mark.parametrize("kind", ["mmd", "ks"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 7.0])
def test_an_alpha_that_is_no_chance_is_refused(kind: str, alpha: float) -> None:
    section = {"kind": kind, "alpha": alpha} | ({"permutations": 99} if kind == "mmd" else {})
    with pytest.raises(ValidationError, match="alpha"):
        find("state_estimation", kind).Config.model_validate(section)


def test_every_estimator_is_registered() -> None:
    for kind in ("ece", "mce", "entropy", "mmd", "ks"):
        assert find("state_estimation", kind).kind == kind


def test_each_window_is_permuted_anew_and_a_resumed_trigger_draws_the_same() -> None:
    drawn = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    seen = Window(torch.zeros(30, 2).log_softmax(1), None, drawn + 0.2)
    one = trigger({"kind": "mmd", "alpha": 1e-9, "permutations": 99})
    one.look(Window(seen.log_probs, None, drawn.flip(0).roll(1, 1)))
    other = copy.deepcopy(one)
    p_values = [one.look(seen).metrics["state/mmd_p_value"] for _ in range(4)]
    assert len(set(p_values)) > 1
    resumed = trigger({"kind": "mmd", "alpha": 1e-9, "permutations": 99})
    resumed.load_state_dict(other.state_dict())
    assert [resumed.look(seen).metrics["state/mmd_p_value"] for _ in range(4)] == p_values
