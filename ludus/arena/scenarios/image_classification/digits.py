"""scikit-learn's handwritten digits, which are part of the package: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ludus.core.errors import ConfigError

SIDE = 8
"""The width and height of an image in pixels."""
_WHITE = 16.0


def load_digits() -> tuple[Tensor, Tensor]:
    """Return (N, 1, 8, 8) images from 0 to 1, and (N,) their digits."""
    try:
        from sklearn import datasets
    except ImportError:
        raise ConfigError(
            "scenario.kind image_classification needs scikit-learn; install it with: pip install"
            " 'ludus[arena]'"
        ) from None
    table: Any = datasets.load_digits()
    images = torch.tensor(table.images, dtype=torch.float32) / _WHITE
    return images.unsqueeze(1), torch.tensor(table.target, dtype=torch.int64)
