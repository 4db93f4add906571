"""Record the operations of an update on a tape, once, and replay them without the Python around them.

On a small network most of an eager update is not arithmetic: it is building the autograd graph, walking it
backwards, creating views and allocating memory. All of that is the same every time. So the first call is
taped, and every later one replays the operations alone, in the memory of the first:

    taped      addmm  relu_  t  addmm  detach  gather  sub  huber  ...  mm  t  add_  ...  adam
    replayed   addmm  relu_     addmm          gather  sub  huber  ...  mm     add_  ...  adam

The operations and their order are those of the eager call, so the results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ludus.nn.engines.gate import DRAWS_ON_HOST, HostRandom
from ludus.nn.engines.operations import Call, Listener, Watcher

# The limits on the sets of shapes that are taped, each in its own memory, and on their total bytes.
_MAX_TAPES = 32
_MAX_BYTES = 256 * 2**20
# Torch aligns its allocations to this; kernels choose their code path by the alignment.
_ALIGNMENT = 64

Kind = tuple[torch.Size, tuple[int, ...], torch.dtype, int]
"""The properties of an input that select its kernels: shape, strides, dtype, alignment of its memory."""

_num_taping = 0


def is_taping() -> bool:
    """Return whether a tape is being recorded: an update that reads a value now cannot be replayed."""
    return _num_taping > 0


class Taped:
    """A function of tensors that is called once for each set of shapes, and replayed after that.

    Its tensors, other than the arguments, must always be the same objects; it may change them in place. Its
    results are overwritten by the next call. A function that branches on a value cannot be replayed: it is
    called every time.

    Torch's matrix products depend in their last bit on the alignment of memory, so a tape serves only inputs
    with the strides and alignment that it was recorded with.
    """

    def __init__(
        self, function: Callable[..., Any], *, tell: Callable[[str], None] | None = None
    ) -> None:
        """`tell` is called with one sentence if the function turns out not to be replayable."""
        self._function = function
        self._tell = tell
        self._tapes: dict[tuple[Kind | None, ...], Tape] = {}
        self._num_bytes = 0
        self.is_possible = True
        """Whether the function can be replayed, as far as is known."""

    def __call__(self, *inputs: Tensor | None) -> Any:
        """Return the result of the function."""
        try:
            # Inlined, because this runs at every update.
            kinds = tuple([
                None if x is None else (x.shape, x.stride(), x.dtype, x.data_ptr() % _ALIGNMENT)
                for x in inputs
            ])  # fmt: skip
        except RuntimeError:
            # Sparse, or without storage.
            return self._function(*inputs)
        tape = self._tapes.get(kinds)
        if tape is not None:
            return tape.replay(inputs)
        if not self.is_possible or len(self._tapes) >= _MAX_TAPES or self._num_bytes > _MAX_BYTES:
            return self._function(*inputs)
        if any(x is not None and not _may_be_copied(x) for x in inputs):
            return self._function(*inputs)
        tape = Tape(inputs)
        result = tape.make(self._function, _MAX_BYTES - self._num_bytes)
        self._num_bytes += tape.num_bytes
        if tape.why_not is None:
            self._tapes[kinds] = tape
            return result
        if not tape.is_too_large:
            self.is_possible = False
        if self._tell is not None:
            self._tell(f"the update is not taped: {tape.why_not}; it is called eagerly")
        return result

    def forget(self) -> None:
        """Drop every tape: the function behaves differently from now on."""
        self._tapes.clear()
        self._num_bytes = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Taped:
        # A tape is bound to the memory of the original.
        return Taped(deepcopy(self._function, memo))


class Tape:
    """The operations of one call, on static memory."""

    def __init__(self, inputs: Sequence[Tensor | None]) -> None:
        self._inputs = [None if value is None else _alike(value) for value in inputs]
        self._calls: list[Call] = []
        self._result: Any = None
        self.why_not: str | None = "it was not made"
        """Why this tape must not be replayed, if so."""
        self.is_too_large = False
        self.num_bytes = 0
        """The memory it keeps for intermediate results, in bytes."""

    def make(self, function: Callable[..., Any], max_bytes: int) -> Any:
        """Call the function and record its operations, unless their results exceed max_bytes."""
        global _num_taping
        _num_taping += 1
        before, host = torch.get_rng_state(), HostRandom()
        try:
            with Listener() as listener, Watcher(max_bytes) as watcher:
                result = function(*self._inputs)
        finally:
            _num_taping -= 1
        self._result = tree_map_only(Tensor, Tensor.detach, result)
        self._calls, self.num_bytes = watcher.calls(), watcher.num_bytes
        self.is_too_large = watcher.is_too_large
        self.why_not = None
        if watcher.has_looked or listener.has_heard:
            self.why_not = "it reads numbers out of tensors as it goes, so it may differ each time"
        elif self.is_too_large:
            self.why_not = f"it would keep more than {_MAX_BYTES // 2**20} MiB of results"
        elif not _draws(watcher.drawn, before):
            self.why_not = "it sets the state of torch's random numbers as it goes"
        elif host.has_moved():
            self.why_not = DRAWS_ON_HOST
        return self._result

    def replay(self, inputs: Sequence[Tensor | None]) -> Any:
        """Replay the operations on other inputs."""
        # The backward pass is on the tape itself, so autograd need not track the operations.
        with torch.inference_mode():
            for own, value in zip(self._inputs, inputs, strict=True):
                if own is not None:
                    own.copy_(value)  # type: ignore[arg-type]
            for call in self._calls:
                call()
        return self._result


def _draws(calls: Sequence[Call], before: Tensor) -> bool:
    """Return whether these draws alone lead from this random state to the present one."""
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    try:
        for call in calls:
            call()
        return torch.equal(torch.get_rng_state(), after)
    finally:
        torch.set_rng_state(after)


def _may_be_copied(value: Tensor) -> bool:
    """Return whether the elements of a tensor do not overlap in memory, and it requires no gradient."""
    is_spread = all(
        step or count < 2 for count, step in zip(value.shape, value.stride(), strict=True)
    )
    return is_spread and not value.requires_grad


def _alike(value: Tensor) -> Tensor:
    """Return a copy with the memory layout of the original: same strides, same alignment."""
    extent = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    shift = value.data_ptr() % _ALIGNMENT // value.element_size()
    room = torch.empty(max(extent, 0) + shift, dtype=value.dtype, device=value.device)
    return room.as_strided(value.shape, value.stride(), shift).copy_(value)
