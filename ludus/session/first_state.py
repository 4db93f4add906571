"""Copy and compare model states, for the initial states that a trainer restores."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ludus.session.digests import WeightCopy


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
            (
                str(one.dtype),
                tuple(one.shape),
                WeightCopy([one.detach().contiguous().view(-1)]).read(),
            )
            for one in _tensors(state)
        ]
    except RuntimeError:
        return None


def _tensors(state: object) -> list[Tensor]:
    return [one for one in tree_leaves(state) if isinstance(one, Tensor)]
