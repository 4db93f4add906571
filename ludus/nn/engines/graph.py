"""Capture an update as a CUDA graph, once for each set of shapes, and replay it with one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ludus.core.errors import ConfigError

# Calls before the capture: libraries choose their kernels and find their memory in them.
_WARM_UP = 3
_MAX_GRAPHS = 8

Kinds = tuple[tuple[torch.Size, torch.dtype] | None, ...]


class Graphed:
    """A function of tensors that is called some times, then captured, and replayed after that.

    Its tensors, other than the arguments, must be the same objects for ever; it may change them in
    place, and must not wait for the device. The calls before the capture are real ones, on the stream
    of the capture, so nothing is computed twice and no state has to be put back.
    """

    def __init__(self, function: Callable[..., Any], device: torch.device) -> None:
        if device.type != "cuda":
            raise ConfigError(
                f"the engine 'graph' replays CUDA graphs, but the device is {device.type}; choose"
                " eager, tape or compiled, or set settings.device to cuda"
            )
        self._function = function
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._num_calls: dict[Kinds, int] = {}
        self._graphs: dict[Kinds, _Graph] = {}

    def __call__(self, *inputs: Tensor | None) -> Any:
        """Return what the function returns, in memory of its own."""
        kinds = tuple([None if x is None else (x.shape, x.dtype) for x in inputs])
        graph = self._graphs.get(kinds)
        if graph is None:
            num_calls = self._num_calls.get(kinds, 0)
            self._num_calls[kinds] = num_calls + 1
            if num_calls < _WARM_UP or len(self._graphs) >= _MAX_GRAPHS:
                return self._call(inputs)
            graph = _Graph(self._function, inputs, self._stream)
            self._graphs[kinds] = graph
        return graph.replay(inputs)

    def _call(self, inputs: Sequence[Tensor | None]) -> Any:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._function(*inputs)
        current.wait_stream(self._stream)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Graphed:
        # A graph works on the memory of the original.
        return Graphed(deepcopy(self._function, memo), self._device)


class _Graph:
    """One captured call, with inputs and results that stay where they are."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Tensor | None],
        stream: torch.cuda.Stream,
    ) -> None:
        device = stream.device
        self._inputs = [None if x is None else x.to(device, copy=True) for x in inputs]
        self._graph = torch.cuda.CUDAGraph()
        # A capture computes nothing: the state is as before until the first replay.
        with torch.cuda.graph(self._graph, stream=stream):
            result = function(*self._inputs)
        self._result = tree_map_only(Tensor, Tensor.detach, result)

    def replay(self, inputs: Sequence[Tensor | None]) -> Any:
        for own, value in zip(self._inputs, inputs, strict=True):
            if own is not None and value is not None:
                own.copy_(value, non_blocking=True)
        self._graph.replay()
        # Whoever keeps a result must not see it overwritten by the next replay.
        return tree_map_only(Tensor, Tensor.clone, self._result)
