"""ECE, MCE, entropy and temperature, against hand-worked cases and slow versions."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from ludus.active.drift.calibration import (
    HIGHEST,
    LOWEST,
    ece,
    fit_temperature,
    mce,
    mean_entropy,
    reliability,
)
from ludus.core.errors import LudusError


def logs(*sure: float) -> torch.Tensor:
    """Return log probabilities of two classes, the first of which has these probabilities."""
    first = torch.tensor(sure, dtype=torch.float64)
    return torch.stack([first, 1 - first], dim=1).log()


@pytest.mark.covers("003-S5")
def test_ece_and_mce_of_five_examples_worked_by_hand() -> None:
    logits, targets = logs(0.95, 0.93, 0.72, 0.78, 0.6), torch.tensor([0, 1, 0, 0, 1])
    # (0.9, 1]: 0.94 sure, 0.5 right; (0.7, 0.8]: 0.75 and 1; (0.5, 0.6]: 0.6 and 0.
    assert ece(logits, targets) == pytest.approx((2 * 0.44 + 2 * 0.25 + 1 * 0.6) / 5)
    assert mce(logits, targets) == pytest.approx(0.6)


def test_a_confidence_on_an_edge_belongs_to_the_bin_below_it() -> None:
    found = reliability(logs(0.75, 0.5, 1.0), torch.tensor([0, 0, 0]), bins=4)
    assert found.counts.tolist() == [0, 1, 1, 1]
    assert found.rows()[0] == {
        "above": 0.0, "to": 0.25, "examples": 0, "confidence": None, "accuracy": None
    }  # fmt: skip
    assert found.rows()[2]["confidence"] == pytest.approx(0.75)


@pytest.mark.covers("003-D9")
def test_the_last_example_counts() -> None:
    right, wrong = torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1])
    assert ece(logs(0.9, 0.9, 0.9), right) != ece(logs(0.9, 0.9, 0.9), wrong)


@pytest.mark.parametrize("bins", [1, 7, 10, 15])
def test_ece_and_mce_agree_with_a_slow_version(bins: int) -> None:
    generator = torch.Generator().manual_seed(bins)
    logits = 3 * torch.randn(400, 5, generator=generator)
    targets = torch.randint(5, (400,), generator=generator)
    gaps, total = [], 0.0
    probs = logits.double().softmax(1).numpy()
    for place in range(bins):
        sure = probs.max(1)
        held = (sure > place / bins) & (sure <= (place + 1) / bins)
        if held.any():
            gap = abs(sure[held].mean() - (probs.argmax(1) == targets.numpy())[held].mean())
            gaps.append(gap)
            total += held.sum() / 400 * gap
    assert ece(logits, targets, bins=bins) == pytest.approx(total, abs=1e-12)
    assert mce(logits.numpy(), targets.numpy(), bins=bins) == pytest.approx(max(gaps), abs=1e-12)


@pytest.mark.covers("003-D10")
def test_entropy_is_log_c_for_a_uniform_prediction_and_0_for_a_sure_one() -> None:
    assert mean_entropy(torch.zeros(3, 8)) == pytest.approx(math.log(8))
    assert mean_entropy(torch.tensor([[0.0, -math.inf]])) == 0.0
    assert mean_entropy(logs(0.5, 1.0)) == pytest.approx(math.log(2) / 2)


@pytest.mark.covers("003-S5")
def test_the_temperature_that_logits_were_made_too_sure_by_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    honest = 2 * torch.randn(20_000, 4, generator=generator, dtype=torch.float64)
    targets = torch.multinomial(honest.softmax(1), 1, generator=generator)[:, 0]
    found = fit_temperature(3 * honest, targets)
    assert found == pytest.approx(3, rel=0.03)
    assert ece(3 * honest / found, targets) < 0.01 < ece(3 * honest, targets)


def test_no_temperature_nearby_fits_better() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(300, 3, generator=generator)
    targets = torch.multinomial((logits / 3).softmax(1), 1, generator=generator)[:, 0]
    found = fit_temperature(logits, targets)

    def nll(temperature: float) -> float:
        return float(functional.cross_entropy(logits.double() / temperature, targets))

    grid = np.exp(np.linspace(math.log(found) - 0.5, math.log(found) + 0.5, 2001))
    assert nll(found) <= min(map(nll, grid)) + 1e-12


def test_a_temperature_stays_within_its_bounds_where_the_data_would_drive_it_on() -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    assert LOWEST <= fit_temperature(logits, torch.tensor([0, 1])) < 0.2
    assert 10 < fit_temperature(logits, torch.tensor([1, 0])) <= HIGHEST
    sure = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    assert math.isfinite(fit_temperature(sure, torch.tensor([0, 1])))


@pytest.mark.parametrize(
    ("logits", "targets", "told"),
    [
        (torch.zeros(0, 3), torch.zeros(0), "one row at least"),
        (torch.tensor([[math.nan, 0.0]]), torch.tensor([0]), "NaN"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "class 3, and the model distinguishes 0 to 2"),
        (torch.zeros(2, 3), torch.tensor([0]), "one class for each of 2"),
        (torch.full((1, 2), -math.inf), torch.tensor([0]), "no class of probability above 0"),
    ],
)
def test_what_cannot_be_calibrated_is_a_sentence(
    logits: torch.Tensor, targets: torch.Tensor, told: str
) -> None:
    for function in (ece, mce, fit_temperature):
        with pytest.raises(LudusError, match=told):
            function(logits, targets)
