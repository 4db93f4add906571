"""The precision that a network computes in, and the dtype of its weights."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

Precision = Literal["float32", "bfloat16", "float16", "bfloat16_pure"]
"""All but the last keep weights, gradients and moments in float32."""
_NAMES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "bfloat16_pure": torch.bfloat16}
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def autocast_in(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the autocast context of this precision."""
    # For bfloat16 weights too: inputs arrive in float32, and the loss is better computed in float32.
    dtype = _NAMES.get(precision)
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def lower_weights(module: nn.Module, precision: Precision) -> None:
    """Convert the weights to bfloat16, in place, if the precision is bfloat16_pure.

    Buffers and the few weights of normalisation layers stay: running statistics need more digits, and there
    torch accepts inputs of either dtype only with float32 weights.
    """
    if precision != "bfloat16_pure":
        return
    for part in module.modules():
        if not isinstance(part, _NORMS):
            for weight in part.parameters(recurse=False):
                if weight.dtype == torch.float32:
                    weight.data = weight.data.to(torch.bfloat16)
