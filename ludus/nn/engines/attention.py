"""Keep attention bit-identical across engines by disabling torch's fast path.

In eval mode without gradients torch's attention layers take a fast path that rounds differently, unless a
TorchFunctionMode is active, as it is while a tape is recorded. An update never takes the fast path, so a
replayed tape equals the eager update.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

_WITH_FAST_PATH = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


def has_attention(modules: Sequence[nn.Module]) -> bool:
    """Return whether any of these networks has a layer with a fast path."""
    return any(isinstance(part, _WITH_FAST_PATH) for one in modules for part in one.modules())


@contextlib.contextmanager
def one_attention() -> Iterator[None]:
    """Disable torch's fast path for the block."""
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)
