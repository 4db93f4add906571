"""Nested arrays as bytes: one safetensors file, with the tree as JSON in its header.

Texts of any length are their lengths in characters (-1: none) and their UTF-8 bytes, one after the other;
those of a fixed width are their code points. A leaf's tensors are named by its place in the sorted order.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from ludus.core.errors import CheckpointError
from ludus.store.outputs import head_of
from ludus.store.strict_json import MAX_DEPTH, dump_json, parse_json
from ludus.text.nested.indexing import Shape
from ludus.text.nested.leaves import TEXT, Leaf, NestedError, dtype_name

_MAX_HEADER = 8 << 20
_MAX_LEAVES = 10_000
_DEEPEST = MAX_DEPTH - 10
_METADATA = "ludus nested arrays 1"
_MAX_DIMENSIONS = 32
_LAST_CODE_POINT = 0x10FFFF
_NUMBERS = re.compile(r"\|b1|\|[iu]1|<[iu][248]|<f[248]|<c(8|16)")
_FIXED = re.compile(r"<U([0-9]{1,9})")

Arrays = dict[str, Leaf]


def encode_tree(tree: Mapping[str, Any], batch_size: Shape) -> bytes:
    """Return the bytes of a tree of arrays; its names must be sorted."""
    arrays: Arrays = {}
    number = 0

    def described(branch: Mapping[str, Any], depth: int) -> dict[str, Any]:
        nonlocal number
        if depth > _DEEPEST:
            raise NestedError(f"names are nested more than {_DEEPEST} deep, which cannot be saved")
        found: dict[str, Any] = {}
        for name, value in branch.items():
            if isinstance(value, dict):
                found[name] = described(value, depth + 1)
            else:
                arrays.update(_encoded(value, str(number)))
                found[name] = [dtype_name(value.dtype), list(value.shape)]
                number += 1
        return found

    structure = dump_json({"batch_size": list(batch_size), "tree": described(tree, 0)})
    if number > _MAX_LEAVES or len(structure) > _MAX_HEADER // 2:
        raise NestedError(
            f"there are more than {_MAX_LEAVES} leaves, or their names are too long to save"
        )
    return safetensors.numpy.save(arrays, {_METADATA: structure.decode()})


def decode_tree(data: bytes, *, source: str) -> tuple[dict[str, Any], Shape]:
    """Return the tree and the batch size that `encode_tree` was given; the bytes may be hostile."""
    try:
        structure = parse_json(_structure(data), source=source)
        arrays = safetensors.numpy.load(data)
        shape = _shape(structure["batch_size"])
        leaves = _Leaves(arrays)
        tree = leaves.branch(structure["tree"])
        leaves.check_all_used()
    except CheckpointError as error:
        raise NestedError(str(error)) from None
    except (
        *(safetensors.SafetensorError, KeyError, ValueError, TypeError, IndexError),
        *(OverflowError, AttributeError, MemoryError),
    ) as error:
        raise NestedError(f"{source} is not a saved nested array dictionary: {error}") from None
    return tree, shape


def is_saved(path: Path) -> bool:
    """Return whether a file begins as one that holds nested arrays."""
    start = b'{"__metadata__":{"' + _METADATA.encode()
    return head_of(path, 8 + len(start))[8:] == start


def _encoded(leaf: Leaf, name: str) -> Iterator[tuple[str, Leaf]]:
    flat = np.ascontiguousarray(leaf).reshape(-1)
    if leaf.dtype.kind == "T":
        texts = flat.tolist()
        lengths = [-1 if text is None else len(text) for text in texts]
        joined = "".join(text for text in texts if text is not None)
        yield f"{name}.lengths", np.array(lengths, dtype="<i8")
        yield f"{name}.utf8", np.frombuffer(joined.encode(), dtype=np.uint8)
    elif leaf.dtype.kind == "U":
        yield name, flat.view(np.uint32).astype("<u4")
    elif leaf.dtype.kind == "c":
        yield name, flat.view(f"<f{leaf.dtype.itemsize // 2}")
    else:
        yield name, flat.astype(leaf.dtype.newbyteorder("<"))


def _structure(data: bytes) -> bytes:
    """Return the JSON in the header, whose size is checked before anything is parsed."""
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    if not 2 <= length <= min(_MAX_HEADER, len(data) - 8):
        raise ValueError("it does not begin as a safetensors file")
    header = parse_json(data[8 : 8 + length], source="the header")
    # Counted before they are made: a hundred thousand empty arrays take seconds.
    if len(header) > 2 * _MAX_LEAVES + 1:
        raise ValueError(f"it holds more than {2 * _MAX_LEAVES} arrays")
    text = header["__metadata__"][_METADATA]
    if not isinstance(text, str):
        raise ValueError("the header holds no tree")
    return text.encode()


def _shape(found: object) -> Shape:
    if not isinstance(found, list) or len(found) > _MAX_DIMENSIONS:
        raise ValueError("a shape is not a list of numbers")
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in found):
        raise ValueError("a shape holds what is not a size")
    return tuple(found)


class _Leaves:
    """Makes the leaves of a tree from the arrays of a file, in order."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._number = 0

    def branch(self, found: object) -> dict[str, Any]:
        """Return the tree under a branch."""
        if not isinstance(found, dict):
            raise ValueError("a branch is not a mapping")
        tree: dict[str, Any] = {}
        for name, value in found.items():
            tree[name] = self.branch(value) if isinstance(value, dict) else self._leaf(value)
        return tree

    def check_all_used(self) -> None:
        """Raise ValueError if the file holds an array that no leaf named."""
        if self._arrays:
            raise ValueError(f"it holds {len(self._arrays)} arrays that are no leaf's")

    def _leaf(self, found: object) -> Leaf:
        if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], str):
            raise ValueError("a leaf is not a dtype and a shape")
        name, dtype, shape = str(self._number), found[0], _shape(found[1])
        self._number += 1
        if dtype == "text":
            return self._texts(name).reshape(shape)
        if width := _FIXED.fullmatch(dtype):
            return self._fixed(name, int(width[1]), shape)
        if not _NUMBERS.fullmatch(dtype):
            raise ValueError(f"{dtype[:20]!r} is not a dtype of a leaf")
        if dtype.startswith("<c"):
            return self._take(name, f"<f{int(dtype[2:]) // 2}").view(dtype).reshape(shape)
        return self._take(name, dtype).reshape(shape)

    def _take(self, name: str, dtype: str) -> Leaf:
        array = self._arrays.pop(name)
        if array.ndim != 1 or array.dtype != np.dtype(dtype):
            raise ValueError(f"an array is {array.dtype} instead of {dtype}")
        if dtype == "|b1" and array.size and int(array.view(np.uint8).max()) > 1:
            raise ValueError("a boolean is neither 0 nor 1")
        return array

    def _fixed(self, name: str, width: int, shape: Shape) -> Leaf:
        points = self._take(name, "<u4")
        if points.size != width * math.prod(shape):
            raise ValueError("there are more, or fewer, code points than the texts have")
        if points.size and int(points.max()) > _LAST_CODE_POINT:
            raise ValueError("a code point is not Unicode")
        if width == 0:
            raise ValueError("the width of a text is 0")
        return points.view(f"<U{width}").reshape(shape)

    def _texts(self, name: str) -> Leaf:
        lengths = self._take(f"{name}.lengths", "<i8")
        joined = self._take(f"{name}.utf8", "|u1").tobytes().decode("utf-8")
        if lengths.size and int(lengths.min()) < -1:
            raise ValueError("the length of a text is negative")
        ends = np.cumsum(np.maximum(lengths, 0))
        # Compared as Python numbers, one sum in 64 bits could wrap.
        if sum(np.maximum(lengths, 0).tolist()) != len(joined):
            raise ValueError("the lengths of the texts are not those of their characters")
        texts = [
            None if length < 0 else joined[end - length : end]
            for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
        ]
        return np.array(texts, dtype=TEXT)
