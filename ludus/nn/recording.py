"""Record what an update does to its tensors, once, and do the same again without asking why.

On a small network most of an eager update is not arithmetic: it is building a graph, walking it
backwards, making views and finding memory. All of that comes out the same every time. So the first
call is watched, and every later one repeats the operations alone, on the memory of the first:

    recorded   addmm  relu_  t  addmm  detach  gather  sub  huber  ...  mm  t  add_  ...  adam
    repeated   addmm  relu_     addmm          gather  sub  huber  ...  mm     add_  ...  adam

The operations and their order are those of the eager call, so the results are the same to the bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

Call = Callable[[], object]

# So many sets of shapes are recorded, each with memory of its own; others are computed as they come.
_MAX_TAPES = 8
# What fills new memory with a constant; where nothing writes to it later, once is enough.
_CONSTANT = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
_CONSTANT |= {"zeros", "ones", "full", "arange", "scalar_tensor", "empty", "empty_like"}
# Code that is known to do the same every time: a module of anyone else's may look at the weather.
_KNOWN = ("torch.nn.", "ludus.")
# What does not keep to the memory it is given.
_UNRULY = {"huber_loss"}
# What depends on numbers, not only on shapes.
_TEARING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def is_recordable(owner: object, modules: Sequence[nn.Module], device: torch.device) -> bool:
    """Return whether the owner's update is known to do the same operations every time."""
    kinds = [type(part) for module in modules for part in module.modules()]
    known = all(f"{kind.__module__}.".startswith(_KNOWN) for kind in [type(owner), *kinds])
    return known and device.type == "cpu"


class Recorded:
    """A function of tensors that is called once for each set of shapes, and repeated after that.

    Its tensors, other than the arguments, must be the same objects for ever; it may change them in
    place. What it returns is overwritten by the next call. A function that looks at a number to decide
    what to do cannot be repeated: it is called every time.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._tapes: dict[tuple[Any, ...], Tape] = {}
        self.is_possible = True
        """Whether, as far as is known, the function can be repeated."""

    def __call__(self, *inputs: Tensor | None) -> Any:
        """Return what the function returns."""
        shapes = tuple([None if value is None else value.shape for value in inputs])
        tape = self._tapes.get(shapes)
        if tape is not None:
            return tape.play(inputs)
        if not self.is_possible or len(self._tapes) >= _MAX_TAPES:
            return self._function(*inputs)
        tape = Tape(inputs)
        result = tape.record(self._function)
        if tape.is_repeatable:
            self._tapes[shapes] = tape
        else:
            self.is_possible = False
        return result


class Tape:
    """The operations of one call, on memory that stays where it is."""

    def __init__(self, inputs: Sequence[Tensor | None]) -> None:
        self._inputs = [None if value is None else value.clone() for value in inputs]
        self._calls: list[Call] = []
        self._result: Any = None
        self.is_repeatable = False

    def record(self, function: Callable[..., Any]) -> Any:
        """Call the function and remember what it did."""
        with _Watch() as watch:
            result = function(*self._inputs)
        self._result = tree_map_only(Tensor, Tensor.detach, result)
        self._calls = watch.calls()
        self.is_repeatable = not watch.is_torn
        return self._result

    def play(self, inputs: Sequence[Tensor | None]) -> Any:
        """Do the same with other inputs."""
        for own, value in zip(self._inputs, inputs, strict=True):
            if own is not None:
                own.copy_(value)  # type: ignore[arg-type]
        for call in self._calls:
            call()
        return self._result


class _Step(NamedTuple):
    """One operation that computes something."""

    call: Call
    constant: int | None
    """The memory it fills with what never changes, unless someone else writes there."""


class _Watch(TorchDispatchMode):
    """Sees every operation just before it is computed, those of the backward pass included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps: list[_Step] = []
        self._written: set[int] = set()
        self._kept: list[Any] = []
        self.is_torn = False
        """Whether a number left the tensors, so that what followed may have depended on it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch's compiler would be imported, which takes longer than many a run.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(tag in _TEARING for tag in func.tags):
            self.is_torn = True
        written = [tensor for value in _changed(func, args, kwargs) for tensor in _tensors(value)]
        # Without their history, which the tensors would else keep alive.
        own_args, own_kwargs = tree_map_only(Tensor, Tensor.detach, (args, kwargs))
        if written:
            self._written |= {_memory(tensor) for tensor in written}
            self._steps.append(_Step(_changing(func, own_args, own_kwargs), None))
            out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
            self._watch_pure(func, own_args, own_kwargs, out)
        # As long as all of them live, no two share their memory by chance.
        self._kept.append((own_args, own_kwargs, out))
        return out

    def _watch_pure(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Remember an operation that makes new tensors; one that only looks at others needs no call."""
        given = {_memory(tensor) for tensor in _tensors((args, kwargs))}
        outs = [tensor.detach() for tensor in _tensors(out)]
        if all(_memory(tensor) in given for tensor in outs if tensor.numel()):
            return
        is_constant = func.overloadpacket.__name__ in _CONSTANT
        constant = _memory(outs[0]) if is_constant else None
        self._steps.append(_Step(_filling(func, args, kwargs, outs), constant))

    def calls(self) -> list[Call]:
        """Return what to call to do the same again."""
        return [
            step.call
            for step in self._steps
            if step.constant is None or step.constant in self._written
        ]


def _changing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return the call of an operation that changes its arguments, before it has."""
    short = getattr(Tensor, func.overloadpacket.__name__, None)
    is_method = len(changed := _changed(func, args, kwargs)) == 1 and changed[0] is args[0]
    if short is not None and is_method and isinstance(args[0], Tensor) and not _is_drawn(func):
        # Torch's own method is quicker than the operation behind it; whether it is the same is tried.
        ours, theirs = args[0].clone(), args[0].clone()
        with contextlib.suppress(TypeError, RuntimeError):
            short(ours, *args[1:], **kwargs)
            func(theirs, *args[1:], **kwargs)
            if _is_same(ours, theirs):
                return partial(short, *args, **kwargs)
    return partial(func, *args, **kwargs)


def _filling(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[Tensor]) -> Call:
    """Return the call of an operation that writes its results over those of the first time.

    Of the ways to do that the quickest is taken that comes to the very same bits.
    """
    name = func.overloadpacket.__name__
    if name == "_to_copy" or name == "clone":
        return partial(outs[0].copy_, args[0])
    if len(outs) == 1 and not _is_drawn(func) and name not in _UNRULY:
        for way, where in _ways(func):
            if _comes_to(outs[0], partial(way, *args, **kwargs), where):
                return partial(way, *args, **kwargs, **{where: outs[0]})

    def compute() -> None:
        for own, value in zip(outs, _tensors(func(*args, **kwargs)), strict=True):
            own.copy_(value)

    return compute


def _ways(func: Any) -> Iterator[tuple[Callable[..., Any], str]]:
    """Yield functions that may do what an operation does, and where they take memory to fill."""
    packet = func.overloadpacket
    if (short := getattr(torch, packet.__name__, None)) is not None:
        yield short, "out"
    for overload in (getattr(packet, name) for name in packet.overloads()):
        extra = [argument.name for argument in overload._schema.arguments if argument.is_out]
        if len(extra) == 1:
            yield overload._op, extra[0]


def _comes_to(result: Tensor, compute: Callable[..., Any], where: str) -> bool:
    """Return whether a function, given new memory, fills just that with the very same result."""
    out = torch.empty_like(result)
    memory = out.untyped_storage()
    place, size = memory.data_ptr(), memory.nbytes()
    try:
        compute(**{where: out})
    except (TypeError, RuntimeError):
        return False
    is_kept = (memory.data_ptr(), memory.nbytes()) == (place, size)
    return is_kept and _is_same(out, result)


def _is_drawn(func: Any) -> bool:
    """Return whether an operation uses up random numbers, so that it must not be tried."""
    return torch.Tag.nondeterministic_seeded in func.tags


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are alike to the bit; one NaN is like another."""
    if (one.shape, one.stride(), one.dtype) != (other.shape, other.stride(), other.dtype):
        return False
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _changed(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that an operation changes."""
    found = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[index] if index < len(args) else kwargs.get(argument.name))
    return found


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
