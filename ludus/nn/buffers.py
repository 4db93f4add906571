"""The buffers and the mode of a network while a step is taken with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ludus.nn.engines.gate import is_plain_kind
from ludus.nn.engines.tape import is_taping

# A buffer larger than this is copied at every step only if the first batch changed it.
_LARGE = 2**20

Before = list[tuple[nn.Module, str, Tensor]]


class GuardedBuffers:
    """Buffers (the running statistics of batch norm) that take nothing from a bad batch.

    A module may put another tensor in a buffer's place as it computes, so they are looked up each time.
    """

    def __init__(self, module: nn.Module) -> None:
        found = {
            id(buffer): (part, name)
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        }
        self._places = list(found.values())
        self._has_looked = False
        self.may_read = all(buffer.device.type == "cpu" for buffer in module.buffers())
        """Whether reading a number costs nothing: on the CPU."""

    def before(self) -> Before:
        """Return a copy of each buffer, for `restore_unless`."""
        return [(part, name, self._buffer(part, name).clone()) for part, name in self._places]

    def restore_unless(self, is_good: Tensor, before: Before) -> None:
        """Put the buffers back unless this number is finite, without waiting for a device."""
        if not before:
            return
        if not self._has_looked:
            self._forget_large(before)
        with torch.no_grad():
            if self.may_read and not is_taping():
                if not math.isfinite(is_good.item()):
                    for part, name, old in before:
                        self._buffer(part, name).copy_(old)
                return
            is_finite = torch.isfinite(is_good)
            for part, name, old in before:
                buffer = self._buffer(part, name)
                buffer.copy_(torch.where(is_finite, buffer, old))

    def _forget_large(self, before: Before) -> None:
        self._has_looked = True
        if is_taping():
            return
        still = {
            (part, name)
            for part, name, old in before
            if old.nbytes > _LARGE and torch.equal(old, self._buffer(part, name))
        }
        self._places = [place for place in self._places if place not in still]

    def _buffer(self, part: nn.Module, name: str) -> Tensor:
        buffer = part._buffers[name]
        assert buffer is not None, f"the buffer {name} of a {type(part).__qualname__} is gone"
        return buffer


def call_with(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    buffers: dict[str, Tensor],
    inputs: tuple[Tensor, ...],
) -> Any:
    """Call a module with other weights and buffers; `buffers` then holds what it has made of them."""
    own = {**weights, **buffers}
    said = functional_call(module, own, inputs)
    # A module may have put another tensor in a buffer's place, as the names now say.
    buffers.update({name: own[name] for name in buffers})
    return said


def parts_with_modes(module: nn.Module) -> list[nn.Module]:
    """Put a module in eval mode; return the parts of it for which train mode would be another."""
    # Called on the whole, because a module may have a say in it: a frozen batch norm never trains.
    module.train()
    trained = [part for part in module.modules() if part.training]
    module.eval()
    return [part for part in trained if not part.training and not is_plain_kind(type(part))]


def set_mode(parts: Sequence[nn.Module], mode: bool) -> None:
    """Set the train or eval mode of these parts alone."""
    for part in parts:
        part.training = mode
