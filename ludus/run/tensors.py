"""Tensors on disk as safetensors, read with every size checked before anything is believed."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ludus.core.errors import CheckpointError, StorageError

MAX_HEADER = 16 << 20
MAX_TENSORS = 50_000


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named CPU tensors to a new file. It is not yet durable."""
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except (SafetensorError, OSError) as error:
        path.unlink(missing_ok=True)
        raise StorageError(f"{path} cannot be written: {error}") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a whole file; raise CheckpointError for anything that is not a plausible one."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    header = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= header <= min(MAX_HEADER, size - 8):
        raise CheckpointError(f"{path} is not a safetensors file")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from None
    if len(tensors) > MAX_TENSORS:
        raise CheckpointError(f"{path} holds {len(tensors)} tensors, more than {MAX_TENSORS}")
    return tensors


class Snapshot:
    """Copies of the tensors of one save, in buffers kept from save to save so that copying is fast."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def keep(self, path: str, tensor: Tensor) -> Tensor:
        """Return a CPU copy that later training steps will not change."""
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[path] = buffer
        return buffer.copy_(tensor, non_blocking=False)
