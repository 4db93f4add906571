"""The names of TorchRL and TensorDict that the arena uses, imported without side effects on the process.

TorchRL sets the start method of multiprocessing to spawn on import, also for the workers of any DataLoader.
Here the script's own setting is kept. Where the extra is not installed, using it raises a one-sentence
error.
"""

# ruff: noqa: F401
# mypy: implicit-reexport
from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator

from ludus.core.errors import LudusError


class MissingExtraError(LudusError, ImportError):
    """A package that an optional part of ludus needs is not installed."""


def missing(error: ModuleNotFoundError) -> MissingExtraError:
    """Return the error that names the missing package, and how it is installed."""
    package = (error.name or str(error)).partition(".")[0]
    return MissingExtraError(
        f"the arena needs {package}, which is not installed; install it with: pip install 'ludus[arena]'"
    )


@contextlib.contextmanager
def start_method_kept() -> Iterator[None]:
    """Restore the start method of processes after the block."""
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


try:
    with start_method_kept():
        from tensordict import TensorDict, TensorDictBase
        from tensordict.nn import (
            ProbabilisticTensorDictModule,
            ProbabilisticTensorDictSequential,
            TensorDictModuleBase,
            set_skip_existing,
            skip_existing,
        )
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
except ModuleNotFoundError as error:
    raise missing(error) from error
