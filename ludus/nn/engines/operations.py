"""Record every operation of a call, each as a call that repeats it in the same memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Call = Callable[[], object]

# Operations that create constants; if nothing writes to that memory later, they need not be replayed.
_CONSTANT = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
_CONSTANT |= {"zeros", "ones", "full", "arange", "scalar_tensor", "empty", "empty_like"}
# Operations whose result depends on values, not only on shapes; and methods that move values to Python.
_LOOKING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_LEAVING = {Tensor.tolist, Tensor.numpy, Tensor.__array__}


class _Step(NamedTuple):
    """One operation that computes something."""

    call: Call
    constant_memory: int | None
    """The address of the constant it writes, which is not replayed unless another operation writes there."""


class Listener(TorchFunctionMode):
    """Detects when a tensor is converted to Python or NumPy, which the dispatcher does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.has_heard = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.has_heard = self.has_heard or func in _LEAVING
        return func(*args, **(kwargs or {}))


class Watcher(TorchDispatchMode):
    """Records every operation just before it runs, those of the backward pass included."""

    def __init__(self, max_bytes: int) -> None:
        """Stop recording when the results of the operations exceed this many bytes."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps: list[_Step] = []
        self._written: set[int] = set()
        self._kept: list[Any] = []
        self._max_bytes = max_bytes
        self.num_bytes = 0
        self.is_too_large = False
        """Whether the results exceeded max_bytes."""
        self.drawn: list[Call] = []
        """Calls that repeat only the draws from torch's default generator."""
        self.has_looked = False
        """Whether a value left the tensors, so that later operations may depend on it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch's compiler would be imported, which takes longer than many a run.
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._efficientzerotensor.default:
            # Zero tensors without storage, which second derivatives create, could be neither kept nor
            # refilled.
            func = torch.ops.aten.zeros.default
        if self.is_too_large:
            return func(*args, **kwargs)
        self.has_looked = self.has_looked or any(tag in _LOOKING for tag in func.tags)
        # Detached, or the tensors would keep their autograd history alive.
        own_args, own_kwargs = _mapped(Tensor.detach, (args, kwargs))
        written = _tensors(_changed(func, own_args, own_kwargs))
        self._written |= {_memory(tensor) for tensor in written}
        changing = _changing(func, own_args, own_kwargs) if written else None
        if _is_drawn(func) and kwargs.get("generator") is None:
            copies = _mapped(torch.clone, (own_args, own_kwargs))
            self.drawn.append(partial(func, *copies[0], **copies[1]))
        out = func(*args, **kwargs)
        given = {_memory(tensor) for tensor in _tensors((args, kwargs))}
        outs = [tensor.detach() for tensor in _tensors(out) if tensor.numel()]
        made = [tensor for tensor in outs if _memory(tensor) not in given]
        if made and len(made) == len(outs):
            call = _filling(func, own_args, own_kwargs, outs, may_try=changing is None)
            is_constant = func.overloadpacket.__name__ in _CONSTANT
            self._steps.append(_Step(call, _memory(outs[0]) if is_constant else None))
            self.num_bytes += sum(tensor.nbytes for tensor in outs)
        elif changing is not None:
            self._steps.append(_Step(changing, None))
            # An output that is partly new and partly in place: no such operation is known, so none is
            # replayed.
            self.has_looked = self.has_looked or bool(made)
        # While all of them are alive, no two share memory by chance.
        self._kept.append((own_args, own_kwargs, out))
        if self.num_bytes > self._max_bytes:
            self.is_too_large = True
            # From here on nothing is recorded, so the call takes no more memory than an eager one.
            self._steps, self._kept = [], []
        return out

    def calls(self) -> list[Call]:
        """Return the calls that replay the recorded operations."""
        return [
            _direct(step.call)
            for step in self._steps
            if step.constant_memory is None or step.constant_memory in self._written
        ]


def _direct(call: Call) -> Call:
    """Return the same call without torch's Python wrapper around an operator."""
    if isinstance(call, partial) and isinstance(call.func, torch._ops.OpOverload):
        return partial(call.func._op, *call.args, **call.keywords)
    return call


def _changing(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Return the call of an in-place operation, before it has run."""
    short = getattr(Tensor, func.overloadpacket.__name__, None)
    changed = _changed(func, args, kwargs)
    is_method = len(changed) == 1 and bool(args) and changed[0] is args[0]
    if short is not None and is_method and isinstance(args[0], Tensor) and not _is_drawn(func):
        # Tensor's method is faster than the operator behind it; check that the results are identical.
        ours, theirs = args[0].clone(), args[0].clone()
        with contextlib.suppress(TypeError, RuntimeError):
            short(ours, *args[1:], **kwargs)
            func(theirs, *args[1:], **kwargs)
            if _is_same(ours, theirs):
                return partial(short, *args, **kwargs)
    return partial(func, *args, **kwargs)


def _filling(
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    outs: list[Tensor],
    *,
    may_try: bool,
) -> Call:
    """Return a call of an operation that overwrites the results of the first call.

    If may_try, the fastest variant that gives bit-identical results is used.
    """
    name = func.overloadpacket.__name__
    if name == "_to_copy" or name == "clone":
        return partial(outs[0].copy_, args[0])
    # Losses with a reduction may reallocate the memory they are given.
    is_reduced = outs[0].ndim == 0 and any(a.name == "reduction" for a in func._schema.arguments)
    if may_try and len(outs) == 1 and not _is_drawn(func) and not is_reduced:
        for variant, where in _out_variants(func):
            if _comes_to(outs[0], partial(variant, *args, **kwargs), where):
                return partial(variant, *args, **kwargs, **{where: outs[0]})

    def compute() -> None:
        found = [tensor for tensor in _tensors(func(*args, **kwargs)) if tensor.numel()]
        for own, value in zip(outs, found, strict=True):
            own.copy_(value)

    return compute


def _out_variants(func: OpOverload) -> Iterator[tuple[Callable[..., Any], str]]:
    """Yield functions that may be equivalent to an operation, with the name of their output argument."""
    packet = func.overloadpacket
    if (short := getattr(torch, packet.__name__, None)) is not None:
        yield short, "out"
    for overload in (getattr(packet, name) for name in packet.overloads()):
        extra = [argument.name for argument in overload._schema.arguments if argument.is_out]
        if len(extra) == 1:
            yield overload._op, extra[0]


def _comes_to(result: Tensor, compute: Callable[..., Any], where: str) -> bool:
    """Return whether a function writes a bit-identical result into the memory it is given, and only there."""
    # Filled with something other than the result.
    out = torch.empty_like(result).copy_(result == 0)
    memory = out.untyped_storage()
    place, size = memory.data_ptr(), memory.nbytes()
    try:
        compute(**{where: out})
    except (TypeError, RuntimeError):
        return False
    is_kept = (memory.data_ptr(), memory.nbytes()) == (place, size)
    return is_kept and _is_same(out, result)


def _is_drawn(func: OpOverload) -> bool:
    """Return whether an operation draws random numbers, so that it must not be tried out."""
    return torch.Tag.nondeterministic_seeded in func.tags


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape, strides, dtype and values; NaN equals NaN."""
    if (one.shape, one.stride(), one.dtype) != (other.shape, other.stride(), other.dtype):
        return False
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _changed(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that an operation changes in place."""
    found = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[index] if index < len(args) else kwargs.get(argument.name))
    return found


def _tensors(value: object) -> list[Tensor]:
    """Return the tensors among the arguments or results of an operation."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for one in value for tensor in _tensors(one)]
    return _tensors(list(value.values())) if isinstance(value, dict) else []


def _mapped(function: Callable[[Tensor], Tensor], value: object) -> Any:
    """Return the arguments of an operation with a function applied to each tensor."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple | list):
        return type(value)([_mapped(function, one) for one in value])
    if isinstance(value, dict):
        return {name: _mapped(function, one) for name, one in value.items()}
    return value


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
