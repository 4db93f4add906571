"""Weights that are not saved with a run: further names of tied weights, and the base of a PEFT adapter.

An adapter is small; its base is large, frozen, and in another folder. So a run saves the adapter alone, with
a digest that identifies the base.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ludus.core import states

BASE = "base_digest"
"""The key of the base's digest among saved weights."""
_KNOWN: WeakKeyDictionary[nn.Module, tuple[list[tuple[int, int]], str]] = WeakKeyDictionary()


def further_names(module: nn.Module) -> dict[str, str]:
    """Return the further names of tied parameters, each with its first name."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(parameter), name)
        if known != name:
            found[name] = known
    return found


def base_names(module: nn.Module) -> list[str]:
    """Return the names of the frozen weights under an adapter; none if there is no adapter."""
    if not any(hasattr(part, "peft_config") for part in module.modules()):
        return []
    named = module.named_parameters(remove_duplicate=False)
    return [name for name, parameter in named if not parameter.requires_grad]


def base_digest(module: nn.Module) -> str | None:
    """Return the shortened SHA-256 digest of an adapter's base; None if there is no adapter.

    It is cached, and recomputed only after a frozen weight was written to.
    """
    names = base_names(module)
    if not names:
        return None
    weights = dict(module.named_parameters(remove_duplicate=False))
    written = [(weights[name].data_ptr(), weights[name]._version) for name in names]
    known = _KNOWN.get(module)
    if known is not None and known[0] == written:
        return known[1]
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name} {weights[name].dtype} {tuple(weights[name].shape)}\0".encode())
        flat = weights[name].detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    found = digest.hexdigest()[:16]
    _KNOWN[module] = (written, found)
    return found


def base_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the digest of the base as bytes, to be saved with an adapter; empty if there is none."""
    digest = base_digest(module)
    return {} if digest is None else {BASE: torch.tensor([*digest.encode()], dtype=torch.uint8)}


def without_base(module: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved weights without the digest; raise StateError if it is the digest of another base."""
    rest = dict(state)
    saved, own = rest.pop(BASE, None), base_digest(module)
    if saved is not None and own is not None:
        like = torch.zeros(len(own), dtype=torch.uint8)
        known = bytes(states.like(state, BASE, like).tolist()).decode("ascii", "replace")
        if known != own:
            raise states.StateError(
                BASE, f"is {known}: the adapter was trained on another base than this one ({own})"
            )
    return rest
