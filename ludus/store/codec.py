"""Encode any tree of state as JSON plus named tensors, and decode it, without loss.

Values that JSON lacks are written as `{"$": kind, ...}`: tensors and arrays (their bytes go to
safetensors), tuples, mappings whose keys are not plain words, floats that are not finite, bytes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import CheckpointError
from ludus.store.strict_json import (
    MAX_DEPTH as MAX_DEPTH,
    dump_json as dump_json,
    parse_json as parse_json,
)
from ludus.store.tensors import can_save

# One value may itself open three brackets.
_DEEPEST = MAX_DEPTH - 3
_PLAIN_INT_BITS = 1024


class Segment:
    """A piece of append-only data, stored once under the hash of its content and shared by checkpoints.

    It is made from tensors, or from a stored name and a function that loads it when needed. Once it is on
    disk it holds no memory: its tensors are read from the file.
    """

    def __init__(
        self,
        tensors: dict[str, Tensor] | None,
        name: str | None,
        load: Callable[[], dict[str, Tensor]] | None,
    ) -> None:
        assert tensors is not None or load is not None
        self._tensors = tensors
        self._load = load
        self.name = name
        """Name on disk; None until it has been written."""
        self.is_lost = False
        """Whether its file could not be read: the owner of the content must then make a new segment."""

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Segment:
        """Return a segment not yet on disk; the tensors must never change again."""
        return cls(tensors, None, None)

    def settle(self, name: str, load: Callable[[], dict[str, Tensor]]) -> None:
        """Release the tensors, which are now on disk under this name."""
        # In this order, because another thread may be reading: set the loader before clearing.
        self._load = load
        self.name = name
        self._tensors = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The content: the tensors it was made from, or a fresh copy from disk."""
        tensors = self._tensors
        if tensors is not None:
            return tensors
        assert self._load is not None
        try:
            return self._load()
        except CheckpointError:
            self.is_lost = True
            raise


Keep = Callable[[str, Tensor], Tensor]


def encode(
    tree: object, *, keep: Keep = lambda path, tensor: tensor
) -> tuple[Any, dict[str, Tensor], list[Segment]]:
    """Return the tree for JSON, its tensors by path, and its segments in order.

    `keep` is called with every tensor and returns the one to store: a copy, if it is written later.
    Raises CheckpointError, naming the path, for a value that could not be read back unchanged.
    """
    encoder = _Encoder(keep)
    return encoder.walk(tree, "", 0), encoder.tensors, encoder.segments


class _Encoder:
    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self.tensors: dict[str, Tensor] = {}
        self.segments: list[Segment] = []

    def walk(self, value: object, path: str, depth: int) -> Any:
        """Return the value for JSON; `depth` is the number of open brackets around it."""
        if value is None or isinstance(value, bool):
            return value
        if depth > _DEEPEST:
            raise CheckpointError(
                f"{path}: nested more than {_DEEPEST} deep, which cannot be saved"
            )
        if isinstance(value, str):
            return value if _is_unicode(value) else _tagged("text", base64=_surrogates(value))
        if isinstance(value, Tensor):
            return _tagged("tensor", name=self._hold(value, path))
        if isinstance(value, np.ndarray | np.generic):
            kind = "array" if isinstance(value, np.ndarray) else "scalar"
            return _tagged(kind, name=self._hold(_as_tensor(value, path), path))
        if isinstance(value, int):
            # Python refuses to print very long integers in decimal.
            is_plain = value.bit_length() <= _PLAIN_INT_BITS
            return int(value) if is_plain else _tagged("int", hex=hex(value))
        if isinstance(value, float):
            is_plain = math.isfinite(value)
            return float(value) if is_plain else _tagged("float", value=str(float(value)))
        if isinstance(value, Mapping):
            return self._walk_mapping(value, path, depth)
        if isinstance(value, list):
            return [self.walk(item, f"{path}/{n}", depth + 1) for n, item in enumerate(value)]
        if isinstance(value, tuple):
            items = [self.walk(item, f"{path}/{n}", depth + 2) for n, item in enumerate(value)]
            return _tagged("tuple", items=items)
        if isinstance(value, bytes):
            return _tagged("bytes", base64=base64.b64encode(value).decode())
        if isinstance(value, Segment):
            self.segments.append(value)
            return _tagged("segment", index=len(self.segments) - 1)
        raise CheckpointError(
            f"{path}: a {type(value).__name__} cannot be saved; a state holds numbers, text, tensors,"
            " arrays, lists, tuples and mappings"
        )

    def _walk_mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> Any:
        if all(type(key) is str and key != "$" and _is_unicode(key) for key in value):
            return {
                key: self.walk(item, f"{path}/{_escaped(key)}", depth + 1)
                for key, item in value.items()
            }
        rows = [
            [self.walk(key, f"{path}/{n}k", depth + 3), self.walk(item, f"{path}/{n}", depth + 3)]
            for n, (key, item) in enumerate(value.items())
        ]
        return _tagged("dict", items=rows)

    def _hold(self, tensor: Tensor, path: str) -> str:
        if not can_save(tensor):
            place, kind = f"a {tensor.layout} tensor", f"{tensor.dtype} on {tensor.device}"
            raise CheckpointError(f"{path}: {place} of {kind} cannot be saved")
        assert path not in self.tensors
        self.tensors[path] = self._keep(path, tensor.detach())
        return path


def _tagged(kind: str, **fields: object) -> dict[str, Any]:
    return {"$": kind, **fields}


def _is_unicode(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8: it holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _surrogates(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _escaped(key: str) -> str:
    """Return a key in which '/' is escaped, so that no two paths are equal."""
    return key.replace("~", "~0").replace("/", "~1")


def _as_tensor(value: np.ndarray[Any, Any] | np.generic, path: str) -> Tensor:
    array = np.array(value, copy=True, order="C").reshape(value.shape)
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        raise CheckpointError(
            f"{path}: a NumPy array of {array.dtype} cannot be saved; convert it to plain numbers"
        ) from None


def decode(tree: object, tensors: Mapping[str, Tensor], segments: list[Segment]) -> Any:
    """Return the tree that `encode` was given."""
    if isinstance(tree, list):
        return [decode(item, tensors, segments) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$" not in tree:
        return {key: decode(item, tensors, segments) for key, item in tree.items()}
    try:
        match tree["$"]:
            case "tensor":
                return tensors[tree["name"]]
            case "array":
                return tensors[tree["name"]].numpy().copy()
            case "scalar":
                return tensors[tree["name"]].numpy()[()]
            case "int":
                return int(tree["hex"], 16)
            case "float":
                return float(tree["value"])
            case "tuple":
                return tuple(decode(item, tensors, segments) for item in tree["items"])
            case "dict":
                pairs = [[decode(part, tensors, segments) for part in row] for row in tree["items"]]
                return dict(pairs)
            case "text":
                data = base64.b64decode(tree["base64"], validate=True)
                return data.decode("utf-8", "surrogatepass")
            case "bytes":
                return base64.b64decode(tree["base64"], validate=True)
            case "segment":
                return segments[tree["index"]]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        problem = str(error)[:200]
        raise CheckpointError(f"the saved state is not well formed: {problem}") from None
    kind = str(tree["$"])[:40]
    raise CheckpointError(f"the saved state holds a {kind!r}, which this ludus does not know")
