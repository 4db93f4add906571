"""Capture an update as a CUDA graph, once for each set of shapes, and replay it with one launch.

    call 1 to 3   run on a side stream: libraries choose their kernels and allocate their memory
    call 4        captured on that stream, on static inputs; then replayed
    later calls   the inputs are copied in, the graph is replayed, the results are copied out

A captured update must not synchronise with the device: no `.item()`, no branch on a tensor, no copy to the
host. The learning rate is a tensor on the device, and so is the step count of the fused optimizer. Torch
registers its default generator with the graph, so that each replay draws new random numbers.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ludus.core.errors import ConfigError, LudusError
from ludus.nn.engines.gate import DRAWS_ON_HOST, HostRandom

_WARM_UP = 3
_MAX_GRAPHS = 8
# Rare shapes are not counted without bound.
_MAX_COUNTED = 1000

Kinds = tuple[tuple[torch.Size, torch.dtype] | None, ...]
Nesting = tuple[tuple[type[Any], int] | None, ...]
"""The class and length of each argument that is a list or tuple; None for a tensor or None."""


class Graphed:
    """A function of tensors that is called a few times, then captured, and replayed after that.

    Its tensors, other than the arguments, must always be the same objects; it may change them in place. The
    warm-up calls are real ones, on the stream of the capture, so nothing is computed twice and no state has
    to be restored.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        device: torch.device,
        *,
        tell: Callable[[str], None] | None = None,
        generators: Sequence[torch.Generator] = (),
        what: str = "the update",
        otherwise: str = "it is called eagerly",
    ) -> None:
        """The function may also draw from these generators: each replay draws new numbers.

        If a call cannot be captured, `tell` is called with a sentence about `what` and what is done
        `otherwise`, and the function is called directly from then on; without `tell` that is a LudusError.
        """
        if device.type != "cuda":
            raise ConfigError(
                f"the engine 'graph' replays CUDA graphs, but the device is {device.type}; choose"
                " eager, tape or compiled, or set settings.device to cuda"
            )
        self._function = function
        self._device = device
        self._tell = tell
        self._generators = tuple(generators)
        self._what, self._otherwise = what, otherwise
        self._stream = torch.cuda.Stream(device)
        # One memory pool for all: the results of a graph are copied before another one is replayed.
        self._pool = torch.cuda.graph_pool_handle()
        self._num_calls: dict[Kinds, int] = {}
        self._graphs: dict[Kinds, _CapturedGraph] = {}
        self.is_possible = True
        """Whether the function can be captured, as far as is known."""

    def __call__(self, *inputs: Tensor | None) -> Any:
        """Return the result of the function, in newly allocated memory."""
        kinds = tuple([None if x is None else (x.shape, x.dtype) for x in inputs])
        graph = self._graphs.get(kinds)
        if graph is None:
            graph = self._captured(kinds, inputs)
        return self._call(inputs) if graph is None else graph.replay(inputs)

    def _captured(self, kinds: Kinds, inputs: Sequence[Tensor | None]) -> _CapturedGraph | None:
        """Return the graph for such inputs, captured after the warm-up; None before."""
        num_calls = self._num_calls.get(kinds, 0)
        if len(self._num_calls) < _MAX_COUNTED:
            self._num_calls[kinds] = num_calls + 1
        if num_calls < _WARM_UP or len(self._graphs) >= _MAX_GRAPHS or not self.is_possible:
            return None
        host = HostRandom()
        try:
            graph = _CapturedGraph(
                self._function, inputs, self._stream, self._pool, self._generators
            )
            if host.has_moved():
                # The capture has computed nothing: the eager call that follows draws these numbers.
                host.put_back()
                raise RuntimeError(DRAWS_ON_HOST)
        except RuntimeError as error:
            self.is_possible = False
            self._give_up(error)
            return None
        self._graphs[kinds] = graph
        return graph

    def _give_up(self, error: RuntimeError) -> None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        why = f"{self._what} cannot be captured as a CUDA graph ({reason})"
        if self._tell is None:
            raise LudusError(f"{why}; set engine to auto or eager") from error
        self._tell(f"{why}; {self._otherwise}")

    def _call(self, inputs: Sequence[Tensor | None]) -> Any:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._function(*inputs)
        current.wait_stream(self._stream)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Graphed:
        # A graph is bound to the memory of the original.
        return Graphed(
            deepcopy(self._function, memo),
            self._device,
            tell=self._tell,
            generators=deepcopy(self._generators, memo),
            what=self._what,
            otherwise=self._otherwise,
        )


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

        def of_leaves(*leaves: object) -> Any:
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


class _CapturedGraph:
    """One captured call, with static inputs and results."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Tensor | None],
        stream: torch.cuda.Stream,
        pool: Any,
        generators: Sequence[torch.Generator],
    ) -> None:
        device = stream.device
        self._inputs = [None if x is None else x.to(device, copy=True) for x in inputs]
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        # A capture computes nothing: the state changes only at the first replay. In thread_local mode, use
        # of the device by another thread (one that writes a checkpoint) does not invalidate it.
        with (
            _without_collecting(),
            torch.cuda.graph(
                self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            ),
        ):
            result = function(*self._inputs)
        # A capture resets the offsets of its generators on the device from its own stream. On a device busy
        # with other processes, that came after the first replay had set them, which then drew other
        # numbers.
        torch.cuda.current_stream(device).wait_stream(stream)
        self._result = tree_map_only(Tensor, Tensor.detach, result)

    def replay(self, inputs: Sequence[Tensor | None]) -> Any:
        for own, value in zip(self._inputs, inputs, strict=True):
            if own is not None and value is not None:
                own.copy_(value, non_blocking=True)
        self._graph.replay()
        # A result must not be overwritten by the next replay.
        return tree_map_only(Tensor, Tensor.clone, self._result)


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """Disable the garbage collector: destroying an old graph would invalidate the capture."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
