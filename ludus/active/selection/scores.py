"""Score one model on labelled rows of a pool, by the name of a score."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.active.scoring import Need, Scorer
from ludus.active.selection.h_score import h_score
from ludus.active.selection.leep import leep
from ludus.active.selection.logme import logme
from ludus.active.selection.nce import nce
from ludus.show.terminal import warn

Selection = Literal["leep", "logme", "nce", "h_score"]
BY_FEATURES = ("logme", "h_score")
"""The scores of features; the others use the model's source classes."""


def score_of(
    selection: Selection, scorer: Scorer, rows: Tensor, labels: Tensor, *, is_regression: bool
) -> float:
    """Return the transferability score of the model for these labels; higher is better."""
    needs: set[Need] = {"features"} if selection in BY_FEATURES else {"probabilities"}
    seen = list(scorer.stream(rows, needs))
    if selection in BY_FEATURES:
        features = torch.cat([one.features for one in seen if one.features is not None])
        if selection == "logme":
            return logme(features, labels, regression=is_regression)
        if len(features) <= features.shape[1]:
            warn(
                f"h_score of {len(features)} labels and {features.shape[1]} features tells models apart by"
                " rounding alone; label more examples than there are features first, or use logme or leep"
            )
        return h_score(features, labels)
    found = torch.cat([one.log_probs for one in seen if one.log_probs is not None]).exp()
    if len(found) <= found.shape[1]:
        warn(
            f"{selection} of {len(found)} labels and {found.shape[1]} source classes: a source class that one"
            " label meets alone seems to tell it; label more examples than there are source classes first,"
            " or use logme"
        )
    return leep(found, labels) if selection == "leep" else nce(found, labels)
