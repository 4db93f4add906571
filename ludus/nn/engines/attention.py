"""Let attention compute in one way, whichever engine executes it.

In eval mode without a gradient torch's attention layers take a fast path with other bits, unless a mode
watches, as it does while a tape is made. An update never takes it: so the tape is the eager update.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

_WITH_FAST_PATH = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


def has_attention(modules: Sequence[nn.Module]) -> bool:
    """Return whether there is a layer among these that has a fast path."""
    return any(isinstance(part, _WITH_FAST_PATH) for one in modules for part in one.modules())


@contextlib.contextmanager
def one_attention() -> Iterator[None]:
    """Keep torch's fast path off inside the block."""
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)
