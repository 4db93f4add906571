"""Copy what the host made to the device that computes, without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the CPU on a device; its memory may be overwritten at once.

    A plain copy to a GPU first waits for all that the GPU was told before. One from pinned memory does
    not, and torch keeps that memory until the copy is done.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
