"""Convert a torch network to steps that NumPy can compute."""

from __future__ import annotations

import copy

from torch import nn

from ludus.core.errors import LudusError
from ludus.nn.export.numpy_net import Linear, NumpyStep, numpy_steps


def exported_steps(module: nn.Module | Linear) -> list[NumpyStep]:
    """Return the layers of a network for NumPy; raise LudusError if NumPy cannot compute one of them."""
    if isinstance(module, Linear):
        return [module]
    steps = numpy_steps(copy.deepcopy(module).cpu())
    if steps is None:
        raise LudusError(
            "the network has layers that NumPy cannot compute"
            f" ({type(module).__name__}); export one of fully connected layers (network.kind: mlp)"
        )
    return steps
