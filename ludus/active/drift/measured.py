"""Calibration of each round of an active run on test data, with a temperature fitted on validation data.

Shapes: N examples, C classes.
"""

from __future__ import annotations

from torch import Tensor

from ludus.active.drift.calibration import fit_temperature, mean_entropy, reliability
from ludus.active.records import CURVE
from ludus.active.scoring import log_probabilities
from ludus.config.base import Positive, StrictConfig
from ludus.core import Run
from ludus.nn.model import Model
from ludus.store.strict_json import dump_json
from ludus.supervised.evaluator import SupervisedEvaluator


class CalibrationConfig(StrictConfig):
    """How calibration is measured."""

    bins: Positive
    """Number of equal-width bins of confidence."""
    temperature: bool
    """Temperature scaling: fit a temperature on the validation data and log the errors with it too."""


def measured(
    config: CalibrationConfig, model: Model, *, test: SupervisedEvaluator,
    validation: SupervisedEvaluator | None, run: Run,
) -> dict[str, float]:  # fmt: skip
    """Return ECE, MCE and entropy on the test data, and save this round's reliability curve."""
    log_probs_NC, targets_N = _predicted(test, model)
    plain = reliability(log_probs_NC, targets_N, bins=config.bins)
    metrics = {
        "test/ece": plain.ece,
        "test/mce": plain.mce,
        "test/entropy": mean_entropy(log_probs_NC),
    }
    curve: dict[str, object] = {"round": run.round("round"), "bins": plain.rows()}
    if validation is not None and config.temperature:
        temperature = fit_temperature(*_predicted(validation, model))
        scaled = reliability(log_probs_NC / temperature, targets_N, bins=config.bins)
        metrics |= {
            "validation/temperature": temperature,
            "test/ece_scaled": scaled.ece,
            "test/mce_scaled": scaled.mce,
        }
        curve |= {"temperature": temperature, "scaled_bins": scaled.rows()}
    if run.files is not None:
        run.files.write(CURVE.format(run.round("round")), dump_json(curve))
    return metrics


def _predicted(data: SupervisedEvaluator, model: Model) -> tuple[Tensor, Tensor]:
    outputs, targets = data.predict(model)
    return log_probabilities(outputs, model.loss).double(), targets.reshape(-1).long()
