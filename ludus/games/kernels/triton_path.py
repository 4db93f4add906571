"""Availability of Triton kernels: by the device and installed packages, never by timing."""

from __future__ import annotations

import functools
import importlib.util
import os

import torch


def why_no_kernels(device: torch.device) -> str | None:
    """Return a short reason why Triton kernels cannot be used on this device; None where they can."""
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"Triton kernels need a CUDA device, and this one is {device.type}"
    if not _has_triton():
        return "triton is not installed (pip install triton)"
    return None


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def power_of_two(number: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << (number - 1).bit_length()
