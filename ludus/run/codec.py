"""Turn any tree of state into JSON plus named tensors, and back, losing nothing.

What JSON cannot say is written as `{"$": kind, ...}`: tensors and arrays (their bytes go to
safetensors), tuples, mappings whose keys are not plain words, floats that are not finite, bytes.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.core.errors import CheckpointError

MAX_DEPTH = 60
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(rb"[\[\]{}]")


class Segment:
    """A piece of append-only data, stored once under the hash of its content and shared by checkpoints.

    It is made from tensors, or from a stored name with the function that loads it when needed.
    """

    def __init__(
        self,
        tensors: dict[str, Tensor] | None,
        name: str | None,
        load: Callable[[], dict[str, Tensor]],
    ) -> None:
        self._tensors = tensors
        self._load = load
        self.name = name
        """None until it has been written."""

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Segment:
        """Return a segment not yet on disk; the tensors must never change again."""
        return cls(tensors, None, lambda: tensors)

    @property
    def tensors(self) -> dict[str, Tensor]:
        if self._tensors is None:
            self._tensors = self._load()
        return self._tensors


Keep = Callable[[str, Tensor], Tensor]


def encode(
    tree: Any, *, keep: Keep = lambda path, tensor: tensor
) -> tuple[Any, dict[str, Tensor], list[Segment]]:
    """Return the tree for JSON, its tensors by path, and its segments in order.

    `keep` is given every tensor and returns what to hold on to: a copy, where the writing comes later.
    """
    tensors: dict[str, Tensor] = {}
    segments: list[Segment] = []

    def hold(path: str, tensor: Tensor) -> str:
        assert path not in tensors
        tensors[path] = keep(path, tensor.detach())
        return path

    def walk(value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, Tensor):
            return {"$": "tensor", "name": hold(path, value)}
        if isinstance(value, np.ndarray | np.generic):
            kind = "array" if isinstance(value, np.ndarray) else "scalar"
            array = np.ascontiguousarray(value).reshape(value.shape)
            try:
                return {"$": kind, "name": hold(path, torch.from_numpy(array.copy()))}
            except TypeError:
                raise TypeError(f"{path}: a NumPy array of {array.dtype} cannot be saved") from None
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return (
                float(value) if math.isfinite(value) else {"$": "float", "value": str(float(value))}
            )
        if isinstance(value, Mapping):
            if all(type(key) is str and key != "$" for key in value):
                return {key: walk(item, f"{path}/{key}") for key, item in value.items()}
            items = enumerate(value.items())
            rows = [[walk(k, f"{path}/{n}k"), walk(v, f"{path}/{n}")] for n, (k, v) in items]
            return {"$": "dict", "items": rows}
        if isinstance(value, list | tuple):
            rows = [walk(item, f"{path}/{n}") for n, item in enumerate(value)]
            return rows if isinstance(value, list) else {"$": "tuple", "items": rows}
        if isinstance(value, bytes):
            return {"$": "bytes", "base64": base64.b64encode(value).decode()}
        if isinstance(value, Segment):
            segments.append(value)
            return {"$": "segment", "index": len(segments) - 1}
        raise TypeError(
            f"{path}: a {type(value).__name__} cannot be saved; a state holds numbers, text, tensors,"
            " arrays, lists, tuples and mappings"
        )

    return walk(tree, ""), tensors, segments


def decode(tree: Any, tensors: Mapping[str, Tensor], segments: list[Segment]) -> Any:
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
            case "float":
                return float(tree["value"])
            case "tuple":
                return tuple(decode(item, tensors, segments) for item in tree["items"])
            case "dict":
                pairs = [[decode(part, tensors, segments) for part in row] for row in tree["items"]]
                return dict(pairs)
            case "bytes":
                return base64.b64decode(tree["base64"], validate=True)
            case "segment":
                return segments[tree["index"]]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CheckpointError(f"the saved state is not well formed: {error!r}") from None
    raise CheckpointError(f"the saved state holds a '{tree['$']}', which this ludus does not know")


def dump_json(tree: Any) -> bytes:
    """Return the tree as JSON text, always the same bytes for the same tree."""
    return json.dumps(tree, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def parse_json(data: bytes, *, source: str) -> Any:
    """Read JSON from a file that may be hostile: bounded depth, no duplicate keys, no NaN."""
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", data)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise CheckpointError(f"{source}: nested more than {MAX_DEPTH} deep")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice")
        return found

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(data, object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: not readable as JSON: {error}") from None
