"""Copy tensors from the host to the device asynchronously."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU tensor on a device; its memory may be overwritten at once.

    A plain copy to a GPU first waits for all work queued on the GPU. One from pinned memory does not, and
    torch keeps that memory until the copy is done.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def to_device(batch: object, device: torch.device) -> Any:
    """Return the batch with all its tensors on the device."""
    return mapped(batch, lambda tensor: tensor.to(device, non_blocking=True))


def mapped(batch: object, function: Callable[[Tensor], Tensor]) -> Any:
    """Return the batch with a function applied to each of its tensors."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, function) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        values = [mapped(value, function) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch


class UploadQueue:
    """Batches on their way to a CUDA device, copied on a side stream while the device computes.

    The stream that takes a batch waits, on the device, for the copy of this batch alone; the host waits for
    nothing. Memory of a batch returns to the side stream only after the work enqueued with it is done
    (`record_stream`), so no later copy overwrites data that is still read.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._waiting: deque[tuple[Any, torch.cuda.Event]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, batch: object) -> None:
        """Start copying a batch; the caller may drop it at once."""
        with torch.cuda.stream(self._stream):
            copied = mapped(batch, self._copy)
            event = torch.cuda.Event()
            event.record(self._stream)
        self._waiting.append((copied, event))

    def take(self) -> Any:
        """Return the batch that was put first, for use on the current stream."""
        batch, event = self._waiting.popleft()
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)

        def used(tensor: Tensor) -> Tensor:
            if not _is_plain(tensor):
                return tensor.to(self._device)
            tensor.record_stream(stream)
            return tensor

        return mapped(batch, used)

    def clear(self) -> None:
        """Drop the batches that were not taken."""
        self._waiting.clear()

    def _copy(self, tensor: Tensor) -> Tensor:
        # A tensor already on a device belongs to the compute stream and is left alone.
        if tensor.device.type != "cpu" or not _is_plain(tensor):
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided
