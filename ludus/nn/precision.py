"""The precision that a network computes in, and that its weights are held in."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

Precision = Literal["float32", "bfloat16", "float16", "bfloat16_pure"]
"""All but the last hold weights, gradients and moments in float32."""
_NAMES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "bfloat16_pure": torch.bfloat16}
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def autocast_in(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the context in which a network of this precision computes."""
    # With weights in bfloat16 too: inputs come in float32, and the loss is better computed so.
    dtype = _NAMES.get(precision)
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def lower_weights(module: nn.Module, precision: Precision) -> None:
    """Hold the weights in bfloat16, in place, where the precision says so.

    Buffers stay as they are, and so do the few weights of layers that normalise: running statistics need
    more digits, and torch takes inputs of either type only with weights in float32 there.
    """
    if precision != "bfloat16_pure":
        return
    for part in module.modules():
        if not isinstance(part, _NORMS):
            for weight in part.parameters(recurse=False):
                if weight.dtype == torch.float32:
                    weight.data = weight.data.to(torch.bfloat16)
