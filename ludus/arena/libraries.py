"""The names of TorchRL that the arena uses, imported without their effect on the rest of the process.

TorchRL lets all processes of multiprocessing be spawned from its import on, the workers of anybody's
DataLoader too. What a script has chosen, or not chosen, stays.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator


@contextlib.contextmanager
def start_method_kept() -> Iterator[None]:
    """Let the block change how processes are started for itself alone."""
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


with start_method_kept():
    from torchrl.data import Binary, Bounded, Composite, Unbounded
    from torchrl.envs import EnvBase
    from torchrl.objectives import (
        ClipPPOLoss,
        KLPENPPOLoss,
        LossModule,
        ReinforceLoss,
        ValueEstimators,
    )
    from torchrl.objectives.utils import distance_loss
    from torchrl.objectives.value import GAE, ValueEstimatorBase

__all__ = [
    "GAE",
    "Binary",
    "Bounded",
    "ClipPPOLoss",
    "Composite",
    "EnvBase",
    "KLPENPPOLoss",
    "LossModule",
    "ReinforceLoss",
    "Unbounded",
    "ValueEstimatorBase",
    "ValueEstimators",
    "distance_loss",
]
