"""Copy and compare model states, for the initial states that a trainer restores."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ludus.session.digests import Reading


def copied(state: object) -> Any:
    """Return a copy of a state in main memory, with the same types and the attributes of its mappings."""
    tensors = {id(one): one.detach().to("cpu", copy=True) for one in _tensors(state)}
    return copy.deepcopy(state, tensors)


def digest(state: object) -> object:
    """Return a digest that changes when a tensor of a state does; it reads few numbers from the device.

    None if the bits of a tensor cannot be read, as with a sparse one.
    """
    try:
        return [
            (str(one.dtype), tuple(one.shape), Reading([one.detach().contiguous().view(-1)]).read())
            for one in _tensors(state)
        ]
    except RuntimeError:
        return None


def _tensors(state: object) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _tensors(value)
