"""Run an update of whole batches on an engine that takes only tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ludus.nn.engines.choice import Executor
from ludus.nn.engines.module_guard import Executed


class OnBatches:
    """An update of a batch and some tensors, executed as a function of all their tensors.

    There is one such function for each structure of a batch: a tensor, a list, a dict, or any of these
    nested. A batch that holds anything but tensors is passed to the update itself.
    """

    def __init__(self, update: Executed, by: Executor, *, copies: bool) -> None:
        """`copies` says that the engine overwrites its results at the next call, so they are copied."""
        self._update = update
        self._by = by
        self._copies = copies
        self._functions: dict[object, Executed] = {}

    def __call__(self, batch: Any, *more: Tensor | None) -> Any:
        """Return the result of the update."""
        kind = batch.__class__
        structure: object = (kind, len(batch)) if kind is tuple or kind is list else None
        leaves = batch if structure is not None else (batch,)
        for leaf in leaves:
            if leaf.__class__ is not Tensor:
                leaves, structure = tree_flatten(batch)
                if not all(leaf.__class__ is Tensor or leaf is None for leaf in leaves):
                    return self._update(batch, *more)
                break
        function = self._functions.get(structure)
        if function is None:
            function = self._functions[structure] = self._by(_of_leaves(self._update, batch))
        result = function(*leaves, *more)
        if not self._copies:
            return result
        if result.__class__ is tuple:
            return tuple([value.clone() for value in result])
        return result.clone()


def _of_leaves(update: Executed, batch: object) -> Callable[..., Any]:
    """Return the update as a function of the flattened tensors of such a batch."""
    leaves, spec = tree_flatten(batch)
    count = len(leaves)

    def of_leaves(*tensors: object) -> Any:
        return update(tree_unflatten(tensors[:count], spec), *tensors[count:])

    return of_leaves
