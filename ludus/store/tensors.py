"""Tensors on disk as safetensors; every size is checked before a file is loaded."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ludus.core.errors import CheckpointError, StorageError
from ludus.store.files import open_plain
from ludus.store.storage import Storage

MAX_HEADER = 8 << 20
MAX_TENSORS = 20_000
# Each tensor in a header has two lists: its shape and its offsets in the file.
_LIST = re.compile(rb":\s*\[")
_SAVED = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
}


def can_save(tensor: Tensor) -> bool:
    """Return whether a tensor can be saved and read back unchanged."""
    return tensor.layout == torch.strided and tensor.dtype in _SAVED and not tensor.is_meta


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named CPU tensors to a new file, without making it durable."""
    if len(tensors) > MAX_TENSORS:
        raise StorageError(
            f"{path} would hold {len(tensors)} tensors, more than the {MAX_TENSORS} that can be read"
        )
    try:
        save_file(_apart(tensors), path)
    except (SafetensorError, OSError) as error:
        path.unlink(missing_ok=True)
        raise StorageError(f"{path} cannot be written: {error}") from error


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors, no two sharing memory."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        place = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return found


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a whole file; raise CheckpointError if it is not a plausible safetensors file."""
    try:
        size = path.stat().st_size
        with open_plain(path) as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise CheckpointError(f"{path} is not a safetensors file")
            header = file.read(length)
        # Counted before parsing: creating a hundred thousand empty tensors takes seconds.
        if len(_LIST.findall(header)) > 2 * MAX_TENSORS:
            raise CheckpointError(f"{path} holds more than {MAX_TENSORS} tensors")
        # The loaded tensors map the file; a copy does not change, or vanish, with it.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from None


def read_stored(storage: Storage, name: str) -> dict[str, Tensor]:
    """Read a whole file of a storage."""
    with storage.local(name) as path:
        return read_tensors(path)


class Snapshot:
    """Copies tensors for a checkpoint into buffers that are reused from save to save, which is fast."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def keep(self, path: str, tensor: Tensor) -> Tensor:
        """Return a CPU copy that later training steps do not change."""
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[path] = buffer
        return buffer.copy_(tensor, non_blocking=False)
