"""How the states of models are copied and compared, for the first state of each that a trainer keeps."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ludus.session.digests import Reading


def copied(state: object) -> Any:
    """Return a copy of a state in main memory, of the same kinds, with all that its mappings carry."""
    tensors = {id(one): one.detach().to("cpu", copy=True) for one in _tensors(state)}
    return copy.deepcopy(state, tensors)


def digest(state: object) -> object:
    """Return what changes when a tensor of a state does; it reads few numbers from the device.

    None where a tensor has no bits to be had, as a sparse one.
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
