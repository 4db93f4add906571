"""Capture compiled code as CUDA graphs, whose launch costs as much as that of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ludus.nn.engines.graph import Graphed

Nesting = tuple[tuple[type[Any], int] | None, ...]
"""The class and length of each argument that is a list or tuple; None for a tensor or None."""


class CapturedCode:
    """Compiled code as a CUDA graph: launching its kernels one by one would cost more than they do.

    There is a set of graphs for each nesting of the arguments: tensors, None, and lists or tuples of these.
    """

    def __init__(
        self, compiled: Callable[..., Any], device: torch.device, tell: Callable[[str], None] | None
    ) -> None:
        self._compiled, self._device = compiled, device
        self._tell = tell or (lambda note: None)
        self.graphed: dict[Nesting, Graphed] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Return the result of the method."""
        leaves = leaves_of(arguments)
        if not all(value is None or isinstance(value, Tensor) for value in leaves):
            return self._compiled(*arguments)
        nesting = tuple([
            (value.__class__, len(value))
            if value.__class__ is tuple or value.__class__ is list
            else None
            for value in arguments
        ])  # fmt: skip
        graphed = self.graphed.get(nesting)
        if graphed is None:
            graphed = self.graphed[nesting] = Graphed(
                self._of_leaves(nesting),
                self._device,
                tell=self._tell,
                what="the compiled update",
                otherwise="it is called as it is",
            )
        # In the memory layout of the graph's own copies, or the capture would trigger a compilation.
        return graphed(*[x if x is None else x.contiguous() for x in leaves])

    def _of_leaves(self, nesting: Nesting) -> Callable[..., Any]:
        """Return the compiled code as a function of tensors alone."""
        if not any(nesting):
            return self._compiled

        def of_leaves(*leaves: Any) -> Any:
            given = iter(leaves)
            return self._compiled(
                *[next(given) if one is None else one[0](islice(given, one[1])) for one in nesting]
            )

        return of_leaves

    def __deepcopy__(self, memo: dict[int, Any]) -> CapturedCode:
        # Graphs are bound to the memory of the original.
        return CapturedCode(deepcopy(self._compiled, memo), self._device, self._tell)


def leaves_of(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with lists and tuples flattened."""
    leaves: list[Any] = []
    for value in arguments:
        if value.__class__ is tuple or value.__class__ is list:
            leaves += value
        else:
            leaves.append(value)
    return leaves
