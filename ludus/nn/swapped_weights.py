"""Use a network without a trace: with other weights or in another mode, and as it was afterwards."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ludus.core.run import Stateful
from ludus.nn.engines.unsaved import OF_MODULES, has_extra_state, is_foreign

Kept = Literal["state", "weights", "buffers", "extra_state", "attributes", "modes"]
SIDE_EFFECTS: tuple[Kept, ...] = ("buffers", "extra_state", "attributes")
"""State that forward passes may change in a network, even in eval mode."""
Restore = Callable[[], object]
Weights = Mapping[str, Tensor] | Sequence[Tensor]


@runtime_checkable
class Weighted(Protocol):
    """An object that returns its weights by name, and loads them: a Learner, an agent."""

    def weights(self) -> Mapping[str, Tensor]: ...
    def load_weights(self, weights: Mapping[str, Tensor], /) -> None: ...


@contextlib.contextmanager
def restored(*owners: object, what: Collection[Kept] = SIDE_EFFECTS) -> Iterator[None]:
    """Restore networks, or the objects around them, after the block.

    state        what an object returns from `state_dict`
    weights      the parameters of a network, the tensors of a list, or what an object returns from `weights`
    buffers      of a network: the tensors themselves and their values
    extra_state  of a network, from `get_extra_state`
    attributes   of classes outside torch and ludus; the block has copies, except of what cannot be copied
    modes        train or eval mode of each layer
    """
    with contextlib.ExitStack() as stack:
        # Undone in reverse: extra state is set on a module that has its own attributes again.
        for kind, keep in _KEEP.items():
            if kind in what:
                for restore in keep(owners):
                    stack.callback(restore)
        yield


@contextlib.contextmanager
def swapped_weights(
    owner: Weighted | Stateful | Sequence[Tensor], weights: Weights
) -> Iterator[None]:
    """Load other weights into a Learner, a Model, an agent or a list of tensors for the block.

    Weights that do not fit raise StateError, with nothing changed.
    """
    with restored(owner, what=["weights" if isinstance(owner, Weighted | Sequence) else "state"]):
        _load(owner, weights)
        yield


def _load(owner: object, weights: Weights) -> None:
    if isinstance(owner, Weighted):
        owner.load_weights(weights)  # type: ignore[arg-type]
    elif isinstance(owner, Stateful):
        owner.load_state_dict(weights)  # type: ignore[arg-type]
    else:
        with torch.no_grad():
            for tensor, other in zip(owner, weights, strict=True):  # type: ignore[call-overload]
                tensor.copy_(other)


def _state(owners: Sequence[Stateful]) -> Iterator[Restore]:
    for owner in owners:
        yield partial(owner.load_state_dict, copy.deepcopy(dict(owner.state_dict())))


def _weights(owners: Sequence[Weighted | nn.Module | Sequence[Tensor]]) -> Iterator[Restore]:
    for owner in owners:
        if isinstance(owner, Weighted) and not isinstance(owner, nn.Module):
            own = {name: tensor.clone() for name, tensor in owner.weights().items()}
            yield partial(_load, owner, own)
        else:
            tensors = [*owner.parameters()] if isinstance(owner, nn.Module) else [*owner]
            yield partial(_load, tensors, [tensor.detach().clone() for tensor in tensors])


def _buffers(owners: Sequence[object]) -> Iterator[Restore]:
    for part in _parts(owners):
        for name, tensor in part._buffers.items():
            # An uninitialised buffer of a lazy layer gets its shape in the block: it holds nothing yet.
            if tensor is not None and not is_lazy(tensor):
                yield partial(_load, [tensor], [tensor.clone()])
            yield partial(part._buffers.__setitem__, name, tensor)


def _extra_state(owners: Sequence[object]) -> Iterator[Restore]:
    for part in _parts(owners):
        if has_extra_state(type(part)):
            yield partial(part.set_extra_state, copy.deepcopy(part.get_extra_state()))


def _attributes(owners: Sequence[object]) -> Iterator[Restore]:
    networks = [owner for owner in owners if isinstance(owner, nn.Module)]
    tensors = [one for net in networks for one in (*net.parameters(), *net.buffers())]
    parts: list[object] = [*_parts(owners)]
    memo: dict[int, Any] = {id(one): one for one in [*parts, *tensors]}
    parts += [owner for owner in owners if not isinstance(owner, nn.Module)]
    for part in parts:
        if is_foreign(type(part)):
            attributes = vars(part)
            own = {name: one for name, one in attributes.items() if name not in OF_MODULES}
            yield partial(_replace, attributes, own)
            for name, value in own.items():
                # What a third-party class may raise here is unknown.
                with contextlib.suppress(Exception):
                    attributes[name] = copy.deepcopy(value, memo)


def _replace(attributes: dict[str, Any], own: Mapping[str, Any]) -> None:
    for name in [name for name in attributes if name not in OF_MODULES]:
        del attributes[name]
    attributes.update(own)


def _modes(owners: Sequence[object]) -> Iterator[Restore]:
    for part in _parts(owners):
        yield partial(setattr, part, "training", part.training)


_KEEP: dict[Kept, Callable[[Any], Iterator[Restore]]] = {
    "state": _state,
    "weights": _weights,
    "buffers": _buffers,
    "extra_state": _extra_state,
    "attributes": _attributes,
    "modes": _modes,
}


def _parts(owners: Sequence[object]) -> list[nn.Module]:
    return [part for one in owners if isinstance(one, nn.Module) for part in one.modules()]
