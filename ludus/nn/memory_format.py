"""The memory format of images and convolution weights: contiguous or channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ludus.nn.engines.trial import Trial

MemoryFormat = Literal["contiguous", "channels_last"]
MemoryFormatKey = Literal["auto", "contiguous", "channels_last"]
"""The values in a config: a memory format, or auto, which picks the faster one."""
_FASTER = 0.97
_OF_IMAGES = (nn.Conv2d, nn.ConvTranspose2d)


def lay_out(module: nn.Module, memory_format: MemoryFormat) -> None:
    """Put the weights of convolutions in this memory format; results differ only by rounding."""
    orders = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    # Only on layers of images: torch would convert any weight of four dimensions.
    for part in module.modules():
        if isinstance(part, _OF_IMAGES):
            part.to(memory_format=orders[memory_format])  # type: ignore[call-overload]


def with_channels_last(batch: object) -> object:
    """Return a batch whose images are in channels-last memory format."""
    return tree_map_only(Tensor, _turned, batch)


def _turned(tensor: Tensor) -> Tensor:
    if tensor.ndim != 4 or not tensor.is_floating_point():
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)


def choose_format(
    wanted: MemoryFormatKey,
    module: nn.Module,
    device: torch.device,
    trial: Callable[[MemoryFormat], Trial | None],
) -> tuple[MemoryFormat, list[str]]:
    """Return the memory format of a network, now in that format, and the messages to log.

    auto times both formats on CUDA if there are convolutions of images; otherwise the network stays as given,
    except that convolutions of mixed formats become contiguous. `trial` returns passes with inputs in this
    format.
    """
    if wanted != "auto":
        lay_out(module, wanted)
        return wanted, []
    has_images = any(isinstance(part, _OF_IMAGES) for part in module.modules())
    if device.type != "cuda" or not has_images:
        found = _format_of(module)
        lay_out(module, found)
        return found, []
    seconds: dict[MemoryFormat, float] = {}
    for one in _BOTH:
        lay_out(module, one)
        passes = trial(one)
        taken = None if passes is None else passes.seconds_if_possible(passes.forward)
        if taken is None:
            lay_out(module, "contiguous")
            return "contiguous", []
        seconds[one] = taken
    first, last = (seconds[one] for one in _BOTH)
    chosen: MemoryFormat = "channels_last" if last < _FASTER * first else "contiguous"
    lay_out(module, chosen)
    if chosen == "contiguous":
        return chosen, []
    return chosen, [
        f"images and their convolutions are kept with channels last: a forward and backward pass takes"
        f" {last * 1000:.3g} ms instead of {first * 1000:.3g} (memory_format)"
    ]


def _format_of(module: nn.Module) -> MemoryFormat:
    """Return the memory format of a network's convolutions: channels last only if all of them are."""
    weights = [part.weight for part in module.modules() if isinstance(part, _OF_IMAGES)]
    # A kernel of one pixel or one channel is in both formats.
    is_last = all(one.is_contiguous(memory_format=torch.channels_last) for one in weights)
    is_first = all(one.is_contiguous() for one in weights)
    return "channels_last" if is_last and not is_first else "contiguous"


_BOTH: tuple[MemoryFormat, MemoryFormat] = ("contiguous", "channels_last")
