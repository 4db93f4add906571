"""Decide whether an update does the same operations at every call, so that an engine may replay it.

Tape, CUDA graph and compiler run the Python code once: a branch on a number, a counter, a hook or a NumPy
call in a network's forward pass would be frozen as it was the first time. Modules of torch and ludus are
known to be safe; any other class must declare it, with `is_repeatable = True`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_module

DRAWS_ON_HOST = (
    "it draws from Python's random or from NumPy as it goes, which would be drawn once only"
)
_WITH_FAST_PATH = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
_KNOWN = ("torch.nn.modules.", "ludus.")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
GLOBAL_HOOKS: Sequence[Mapping[int, object]] = [
    getattr(torch_module, f"_global{name}") for name in HOOKS
]
"""The hooks that torch calls for every module."""
_PLAIN = {nn.Sequential, nn.ModuleList, nn.Linear, nn.Conv2d, nn.Flatten, nn.Identity, nn.LayerNorm}
_PLAIN |= {nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.ModuleDict, nn.Embedding}


def why_not_repeatable(owner: object, modules: Sequence[nn.Module]) -> str | None:
    """Return why the update of this owner and these networks may differ from call to call, if it may."""
    parts = [part for module in modules for part in module.modules()]
    for part in [owner, *parts]:
        kind = type(part)
        if not _is_known(kind):
            return (
                f"{kind.__qualname__} is neither torch's nor ludus's, so it may compute something else"
                " each time; if it does not, say so in the class with 'is_repeatable = True'"
            )
    for part in parts:
        kind = type(part)
        if any(getattr(part, name) for name in HOOKS):
            return f"a {kind.__qualname__} has hooks, which would be called once only"
        if "forward" in vars(part):
            return f"the forward of a {kind.__qualname__} was replaced"
        weights = part.parameters(recurse=False)
        if any(getattr(weight, name) for weight in weights for name in TENSOR_HOOKS):
            return (
                f"a parameter of a {kind.__qualname__} has hooks, which would be called once only"
            )
        if getattr(part, "momentum", 0) is None and getattr(part, "track_running_stats", False):
            return f"a {kind.__qualname__} with momentum=None looks at its count at every call"
    if any(GLOBAL_HOOKS):
        return "there are hooks for all modules, which would be called once only"
    return None


def is_plain(modules: Sequence[nn.Module]) -> bool:
    """Return whether networks consist of ludus's modules and of layers known to compile as one graph."""
    parts = [part for module in modules for part in module.modules()]
    return all(is_plain_kind(type(part)) and not _is_unusual(part) for part in parts)


def is_plain_kind(kind: type) -> bool:
    """Return whether a module of this class itself computes the same in train and eval mode."""
    return kind in _PLAIN or f"{kind.__module__}.".startswith("ludus.")


def _is_unusual(part: nn.Module) -> bool:
    """Return whether a plain layer has an option that does not compile."""
    return isinstance(part, nn.Embedding) and (part.max_norm is not None or part.sparse)


def _is_known(kind: type) -> bool:
    # Looked up in the class itself, since a subclass may add code that does not qualify.
    return f"{kind.__module__}.".startswith(_KNOWN) or vars(kind).get("is_repeatable") is True


class HostRandom:
    """A snapshot of the global generators of Python and NumPy, whose draws no engine replays."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state(legacy=True)

    def has_moved(self) -> bool:
        """Return whether anything was drawn since the snapshot."""
        kind, keys, *rest = np.random.get_state(legacy=True)
        was, were, *more = self._numpy
        is_same = (kind, *rest) == (was, *more) and np.array_equal(keys, were)
        return not is_same or random.getstate() != self._python

    def put_back(self) -> None:
        """Restore both generators to the snapshot."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)


def has_attention(modules: Sequence[nn.Module]) -> bool:
    """Return whether any of these networks has a layer with a fast path."""
    return any(isinstance(part, _WITH_FAST_PATH) for one in modules for part in one.modules())


@contextlib.contextmanager
def one_attention() -> Iterator[None]:
    """Disable torch's fast path for the block, so that attention is bit-identical across engines.

    In eval mode without gradients torch's attention layers take a fast path that rounds differently, unless a
    TorchFunctionMode is active, as it is while a tape is recorded. An update never takes the fast path, so a
    replayed tape equals the eager update.
    """
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)
