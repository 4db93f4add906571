"""The parameters of a network in a few flat vectors, so that one call updates, clips or averages each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ludus.core import states
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.nn.groups import Group, Named, divide

CHANGED_TRAINED = (
    "requires_grad of a parameter was changed after training began, which neither the optimizer nor a"
    " resumed run follows; freeze with 'parameter_groups' or learner.set_frozen"
)
_PIECES = 30
"""The number of tensors that one launch of a fused optimizer takes."""
_ALIGNED = 1024
Vectors = Sequence[Tensor]
"""One vector for each part: weights, gradients, moments or EMA."""


class FlatPart:
    """Parameters of one group, dtype and device as views of one vector, and their gradients of another.

    With keeps_gradients=False each gradient is the tensor that autograd made: no memory while there are none,
    and no pass over all of them to add and clear them. That pays for large networks.
    """

    def __init__(self, named: Named, group: Group | None, *, keeps_gradients: bool = True) -> None:
        self.group = group
        self.keeps_gradients = keeps_gradients
        self.parameters = [parameter for _, parameter in named]
        self.names = [name for name, _ in named]
        self.shapes = [parameter.shape for _, parameter in named]
        self.sizes = [parameter.numel() for _, parameter in named]
        self._orders = [_memory_order(parameter) for _, parameter in named]
        self.vector = torch.cat([
            self.flattened(index, weight.detach()) for index, (_, weight) in enumerate(named)
        ])  # fmt: skip
        self.gradient = torch.zeros_like(self.vector) if keeps_gradients else self.vector[:0]
        self.rate = 1.0 if group is None else group.rate
        self.is_frozen: Tensor | None = None
        """Whether it takes no step; a tensor, so that a tape or a CUDA graph sees it change."""
        if group is not None:
            self.is_frozen = torch.tensor(group.is_frozen, device=self.vector.device)
        ends = itertools.accumulate(self.sizes, initial=0)
        self._places = [start * self.vector.itemsize for start, _ in itertools.pairwise(ends)]
        """The offset of each parameter in the vector, in bytes."""
        for (_, parameter), view in zip(named, self.views(self.vector), strict=True):
            parameter.data = view
            parameter.grad = None
        if keeps_gradients:
            for (_, parameter), gradient in zip(named, self.views(self.gradient), strict=True):
                # Detached: a compiler would reconstruct a view from its base.
                parameter.grad = gradient.detach()

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the pieces of a vector of this layout, each in its parameter's shape and memory order."""
        return [self.shaped(index, one) for index, one in enumerate(vector.split(self.sizes))]

    def shaped(self, index: int, piece: Tensor) -> Tensor:
        """Return one parameter's piece of a vector in the parameter's shape."""
        shape, order = self.shapes[index], self._orders[index]
        if order is None:
            return piece.view(shape)
        places = [order.index(dim) for dim in range(len(order))]
        return piece.view([shape[dim] for dim in order]).permute(places)

    def flattened(self, index: int, tensor: Tensor) -> Tensor:
        """Flatten a tensor of one parameter's shape into its piece of a vector."""
        order = self._orders[index]
        return (tensor if order is None else tensor.permute(order)).reshape(-1)

    def released_gradients(self) -> list[Tensor]:
        """Return the gradient that autograd made for each parameter, flattened in memory order."""
        found = []
        for index, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            elif gradient.is_sparse:
                gradient = gradient.to_dense()
            # A view if the gradient has the memory order of the weight, else a copy.
            found.append(self.flattened(index, gradient))
        return found

    def name_without_gradient(self) -> str | None:
        """Return the first parameter whose kept gradient is not a view of the gradient vector."""
        begin = self.gradient.data_ptr()
        found = zip(self.names, self.parameters, self._places, strict=True)
        for name, parameter, place in found:
            gradient = parameter.grad
            is_there = gradient is not None and gradient.data_ptr() == begin + place
            if not is_there and parameter.numel():
                return name
        return None

    def name_elsewhere(self, named: Mapping[str, nn.Parameter]) -> str | None:
        """Return the first of these parameters that is not a view of the vector."""
        begin = self.vector.data_ptr()
        for name, place in zip(self.names, self._places, strict=True):
            # An empty parameter has no address.
            if named[name].data_ptr() != begin + place and named[name].numel():
                return name
        return None

    def slices(self, names: Collection[str]) -> list[slice]:
        """Return the slices of the vector that hold the parameters with these names."""
        bounds = itertools.pairwise(itertools.accumulate(self.sizes, initial=0))
        found = zip(self.names, bounds, strict=True)
        return [slice(start, end) for name, (start, end) in found if name in names]


class FlatParameters:
    """The trainable parameters of a module as views of vectors: one for each group, dtype and device.

    The module keeps working as before. Loading copies into the views and never rebinds them. States are saved
    by parameter name, so a network that was never flattened can load them.
    """

    def __init__(
        self, module: nn.Module, groups: Sequence[Group] = (), *, keeps_gradients: bool = True
    ) -> None:
        self.keeps_gradients = keeps_gradients
        self.parts: list[FlatPart] = []
        """One, with all parameters in it, for most networks."""
        self.frozen: dict[str, bool] = {}
        """Whether each group is frozen, by name; empty if there are no groups."""
        _refuse_lazy(module)
        for group, own in divide(module, groups):
            kinds: dict[tuple[torch.dtype, torch.device], Named] = {}
            for name, parameter in own:
                kinds.setdefault((parameter.dtype, parameter.device), []).append((name, parameter))
            self.parts += [
                FlatPart(named, group, keeps_gradients=keeps_gradients) for named in kinds.values()
            ]
            if group is not None:
                self.frozen[group.name] = group.is_frozen
        flattened = {name for part in self.parts for name in part.names}
        self.names = [name for name, _ in module.named_parameters() if name in flattened]
        self.vectors = [part.vector for part in self.parts]
        self.gradients = [part.gradient for part in self.parts]
        self.device = self.vectors[0].device

    def gradients_by_name(self) -> dict[str, Tensor]:
        """Return the accumulated gradients by parameter name."""
        if self.keeps_gradients:
            return self.by_name(self.gradients)
        vectors = [torch.cat(part.released_gradients()) for part in self.parts]
        return self.by_name(vectors)

    def clear_gradients(self) -> None:
        """Clear the accumulated gradients."""
        for part in self.parts:
            part.gradient.zero_()
            for parameter in () if self.keeps_gradients else part.parameters:
                parameter.grad = None

    def load_gradients(self, named: Mapping[str, Tensor]) -> None:
        """Set the accumulated gradients to these."""
        if self.keeps_gradients:
            self.load(self.gradients, named, finite=False)
            return
        self.check(named, finite=False)
        for part in self.parts:
            for name, parameter in zip(part.names, part.parameters, strict=True):
                parameter.grad = torch.empty_like(parameter).copy_(named[name])

    def set_frozen(self, name: str, is_frozen: bool) -> None:
        """Freeze a group, or unfreeze it."""
        if name not in self.frozen:
            known = f"it has {', '.join(self.frozen)}" if self.frozen else "it has none"
            raise LudusError(
                f"the learner has no group '{name}', {known}.{nearest(name, self.frozen)}"
            )
        self.frozen[name] = is_frozen
        for part in self.parts:
            if part.group is not None and part.group.name == name and part.is_frozen is not None:
                part.is_frozen.fill_(is_frozen)

    def check_frozen(self, saved: Mapping[str, Any]) -> None:
        """Raise StateError unless this holds a flag for each group: whether it is frozen."""
        states.check_keys(saved, *self.frozen)
        for name in self.frozen:
            states.flag(saved, name)

    def check_trained(self, module: nn.Module) -> None:
        """Raise LudusError if requires_grad was changed after flattening, or a weight is no longer a view.

        No step would reach such a weight.
        """
        named = dict(module.named_parameters())
        if [name for name, weight in named.items() if weight.requires_grad] != self.names:
            raise LudusError(CHANGED_TRAINED)
        for part in self.parts:
            if (name := part.name_elsewhere(named)) is not None:
                raise LudusError(
                    f"the parameter {name} was exchanged after training began (a new layer, p.data = ...,"
                    " load_state_dict(assign=True), .double()), so no step would reach it; change it in"
                    " place: with torch.no_grad(): p.copy_(...)"
                )

    def check_gradients(self) -> None:
        """Raise LudusError if a gradient is no longer a view of its vector, which is what steps read."""
        for part in self.parts if self.keeps_gradients else ():
            if (name := part.name_without_gradient()) is not None:
                raise LudusError(
                    f"the gradient of {name} was taken away (zero_grad(), p.grad = None), so no step goes"
                    " along it; ludus clears gradients itself: remove that"
                )

    def by_name(self, vectors: Vectors) -> dict[str, Tensor]:
        """Return the pieces of vectors of this layout, by parameter name."""
        found: dict[str, Tensor] = {}
        for part, vector in zip(self.parts, vectors, strict=True):
            found.update(zip(part.names, part.views(vector), strict=True))
        return {name: found[name] for name in self.names}

    def check(self, named: Mapping[str, Any], *, finite: bool = True) -> None:
        """Raise StateError unless these are pieces of this layout; copy_ would broadcast a smaller one."""
        try:
            states.check_keys(named, *self.names)
            for name, piece in self.by_name(self.vectors).items():
                states.like(named, name, piece, finite=finite)
        except states.StateError as error:
            remedy = "build the model as it was when it was saved"
            raise states.StateError(error.key, f"{error.problem}; {remedy}") from None

    def load(self, vectors: Vectors, named: Mapping[str, Tensor], *, finite: bool = True) -> None:
        """Copy named pieces into vectors of this layout, all of them or none."""
        self.check(named, finite=finite)
        for name, piece in self.by_name(vectors).items():
            piece.copy_(named[name])

    def norm(self) -> float:
        """Return the L2 norm of all weights."""
        return math.hypot(*[float(vector.norm()) for vector in self.vectors])


def copy_all(vectors: Vectors, others: Vectors) -> None:
    """Copy other vectors of the same layout into these."""
    for vector, other in zip(vectors, others, strict=True):
        vector.copy_(other)


def fused_pieces(pieces: list[slice]) -> list[slice]:
    """Split these slices into about as many as one launch of a fused CUDA kernel takes.

    One thread block updates a chunk of up to 65,536 numbers, so a small network in one slice would leave
    nearly all of the GPU idle.
    """
    total = sum(piece.stop - piece.start for piece in pieces)
    size = -(-total // (_PIECES * _ALIGNED)) * _ALIGNED
    return [
        slice(start, min(start + size, piece.stop))
        for piece in pieces
        for start in range(piece.start, piece.stop, size)
    ]


def _memory_order(weight: Tensor) -> list[int] | None:
    """Return the dimensions of a weight in memory order, outermost first; None if it is contiguous."""
    if weight.is_contiguous():
        return None
    strides = weight.stride()
    order = sorted(range(weight.ndim), key=lambda dim: -strides[dim])
    # A weight with gaps or overlapping memory is laid out contiguously.
    return order if weight.permute(order).is_contiguous() else None


def _refuse_lazy(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise ConfigError(
                f"the parameter {name} has no size yet (a lazy layer); call the network once on an example"
                " before you give it"
            )
