"""Write the report's records of each round: some of the queries, the class balance, and the calibration.

Shapes: A queried rows; C channels, H height, W width of an image. Calibration: N examples, C classes.
"""

from __future__ import annotations

import base64
import math

import torch
from torch import Tensor

from ludus.active.config import ActiveConfig, CalibrationConfig
from ludus.active.drift.calibration import fit_temperature, mean_entropy, reliability
from ludus.active.examples import PoolExamples
from ludus.active.labelling.queries import picture_of, shrunk
from ludus.active.pool import Pool
from ludus.active.records import ASKED, CURVE, Example, QueryRecord
from ludus.active.scoring import log_probabilities
from ludus.config.sections import kind_of
from ludus.core import Run
from ludus.core.services import Files
from ludus.nn.model import Model
from ludus.show.png import png
from ludus.store.strict_json import dump_json
from ludus.supervised.evaluator import SupervisedEvaluator

_MOST_EXAMPLES = 12
_MOST_NUMBERS = 8
_MOST_CLASSES = 1000
_WIDEST = 32
"""The side of a thumbnail, in pixels."""


def record_asked(
    files: Files, rows_A: Tensor, labels_A: Tensor, *, number: int, how: str, config: ActiveConfig,
    examples: PoolExamples, pool: Pool, num_classes: int | None,
) -> None:  # fmt: skip
    """Write the queries of round `number`; the config of the network may give an image shape."""
    names = getattr(config.oracle, "class_names", None)
    # With any other oracle the targets in the data may be placeholders.
    targets = examples.targets_in_memory if kind_of(config.oracle) == "known" else None
    record = QueryRecord(
        format=1,
        round=number,
        how=how,
        num_asked=len(rows_A),
        class_names=None if names is None else list(names),
        labelled_by_class=_counts(pool.labels, num_classes),
        pool_by_class=_counts(targets, num_classes),
        examples=_shown(rows_A[:_MOST_EXAMPLES], labels_A, examples, config.model),
    )
    files.write(ASKED.format(number), dump_json(record.model_dump(mode="json")))


def measure_calibration(
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


def _counts(classes: Tensor | None, num_classes: int | None) -> list[int] | None:
    if classes is None or num_classes is None or num_classes > _MOST_CLASSES:
        return None
    classes = classes.reshape(-1).long()
    # A pool that people label may have numbers in place of targets.
    if not bool(((classes >= 0) & (classes < num_classes)).all()):
        return None
    return [int(count) for count in classes.bincount(minlength=num_classes)]


def _shown(
    rows_A: Tensor, labels_A: Tensor, examples: PoolExamples, model: object
) -> list[Example]:
    inputs = examples.inputs(rows_A) if len(rows_A) else None
    columns = getattr(examples.dataset, "columns", None)
    names = [] if columns is None else [str(name) for name in columns]
    found = []
    for place, row in enumerate(rows_A.tolist()):
        one = inputs[place].detach().cpu() if isinstance(inputs, Tensor) else None
        sides = None if one is None else picture_of(one, model)
        numbers = [] if one is None or sides else one.flatten()[:_MOST_NUMBERS].tolist()
        is_named = one is not None and len(names) == one.numel()
        found.append(
            Example(
                row=row,
                label=labels_A[place].item(),
                picture=_thumbnail(one.reshape(sides)) if one is not None and sides else None,
                columns=names[: len(numbers)] if is_named and numbers else None,
                numbers=[float(one) if math.isfinite(one) else None for one in numbers],
                num_more=one.numel() - len(numbers) if numbers and one is not None else 0,
            )
        )
    return found


def _thumbnail(picture_CHW: Tensor) -> str:
    """Return an image, downscaled and contrast-stretched, as PNG in base64."""
    is_coloured = picture_CHW.shape[0] in (3, 4)
    pixels_CHW = picture_CHW[:3].double().nan_to_num()
    if not is_coloured:
        pixels_CHW = pixels_CHW.mean(0, keepdim=True)
    bytes_HWC = (
        (shrunk(pixels_CHW, _WIDEST) * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()
    )
    height, width, channels = bytes_HWC.shape
    data = bytes(bytes_HWC.flatten().tolist())
    return base64.b64encode(png(data, width=width, height=height, channels=channels)).decode()
