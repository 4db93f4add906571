"""Run a network without side effects: its buffers, which may change even in eval mode, are restored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parameter import is_lazy


@contextlib.contextmanager
def preserved_buffers(module: nn.Module) -> Iterator[None]:
    """Restore the buffers of a network after the block, since they may change even in eval mode."""
    places = [(part._buffers, name) for part in module.modules() for name in part._buffers]
    before = [(held, name, held[name]) for held, name in places]
    # An uninitialised buffer of a lazy layer gets its shape in the block, and holds nothing to restore.
    copies = [
        None if tensor is None or is_lazy(tensor) else tensor.clone() for *_, tensor in before
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for (held, name, tensor), copy in zip(before, copies, strict=True):
                held[name] = tensor
                if tensor is not None and copy is not None:
                    tensor.copy_(copy)
