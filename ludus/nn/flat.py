"""All parameters of a network in one vector, so that one call updates, clips or averages them all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core import states
from ludus.core.errors import LudusError


class FlatParameters:
    """The trainable parameters of a module as views of one vector, and their gradients of another.

    The module keeps working as before. Loading copies into the views and never rebinds them. What is
    saved is always by name, so a network that was never flattened can load it.
    """

    def __init__(self, module: nn.Module) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise LudusError("the model has no parameter to train; set requires_grad on some")
        kinds = {(parameter.dtype, parameter.device) for _, parameter in named}
        if len(kinds) > 1:
            shown = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise LudusError(
                f"the model's parameters are {shown}; bring them to one type and device"
            )
        self.names = [name for name, _ in named]
        self.shapes = [parameter.shape for _, parameter in named]
        self.sizes = [parameter.numel() for _, parameter in named]
        self.vector = torch.cat([parameter.detach().reshape(-1) for _, parameter in named])
        self.gradient = torch.zeros_like(self.vector)
        views = zip(named, self.views(self.vector), self.views(self.gradient), strict=True)
        for (_, parameter), view, gradient in views:
            parameter.data = view
            parameter.grad = gradient

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the pieces of a vector of this layout, each in its parameter's shape."""
        pieces = vector.split(self.sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def by_name(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the pieces of a vector of this layout, by parameter name."""
        return dict(zip(self.names, self.views(vector), strict=True))

    def check(self, named: Any, *, finite: bool = True) -> None:
        """Raise StateError unless these are pieces of this layout; copy_ would stretch a smaller one."""
        try:
            states.check_keys(named, *self.names)
            for name, piece in self.by_name(self.vector).items():
                states.like(named, name, piece, finite=finite)
        except states.StateError as error:
            remedy = "build the model as it was when it was saved"
            raise states.StateError(error.key, f"{error.problem}; {remedy}") from None

    def load(self, vector: Tensor, named: Mapping[str, Tensor], *, finite: bool = True) -> None:
        """Copy named pieces into a vector of this layout, all of them or none."""
        self.check(named, finite=finite)
        for name, piece in self.by_name(vector).items():
            piece.copy_(named[name])

    @contextlib.contextmanager
    def swapped(self, vector: Tensor) -> Iterator[None]:
        """Let the module compute with other weights inside the block."""
        own = self.vector.clone()
        self.vector.copy_(vector)
        try:
            yield
        finally:
            self.vector.copy_(own)
