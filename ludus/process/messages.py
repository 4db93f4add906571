"""Serialise a tree of state as one message to another process: JSON and one buffer of raw bytes."""

from __future__ import annotations

from typing import Any

from safetensors.torch import load, save

from ludus.store import codec


def pack(tree: object) -> tuple[Any, bytes]:
    """Return the tree as plain JSON data and the bytes of all its tensors; it must hold no segments."""
    plain, tensors, segments = codec.encode(tree, keep=lambda path, t: t.cpu().clone().contiguous())
    assert not segments, "segments live on disk; another process cannot be handed one"
    return plain, save(tensors)


def unpack(plain: object, data: bytes | bytearray) -> Any:
    """Return the tree that `pack` was given."""
    return codec.decode(plain, load(bytes(data)), [])
