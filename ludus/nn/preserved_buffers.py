"""Looking at a network without a trace: its buffers, which it may change in eval mode too, are put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parameter import is_lazy


@contextlib.contextmanager
def preserved_buffers(module: nn.Module) -> Iterator[None]:
    """Put the buffers of a network back afterwards, should it change them in eval mode too."""
    places = [(part._buffers, name) for part in module.modules() for name in part._buffers]
    before = [(held, name, held[name]) for held, name in places]
    # One without a shape yet, of a lazy layer, gets its shape here, and holds nothing to put back.
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
