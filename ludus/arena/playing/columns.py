"""Conversion between a TensorDict of rows and a flat sequence of tensors, which engines can replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ludus.arena.libraries import TensorDict, TensorDictBase

AGENTS = "agents"
SEPARATOR = "/"


def to_columns(td: TensorDictBase) -> dict[str, Tensor]:
    """Return every tensor of a TensorDict, by the path of its key."""
    found = {}
    for key, value in td.items(include_nested=True, leaves_only=True):
        name = key if isinstance(key, str) else SEPARATOR.join(key)
        found[name] = value
    return dict(sorted(found.items()))


def to_tensordict(columns: Mapping[str, Tensor], num_dims: int) -> TensorDict:
    """Return the TensorDict of these columns, with this many batch dimensions."""
    tree: dict[str, object] = {}
    for name, tensor in columns.items():
        *path, last = name.split(SEPARATOR)
        place = tree
        for part in path:
            place = place.setdefault(part, {})  # type: ignore[assignment]
        place[last] = tensor
    batch = next(iter(columns.values())).shape[:num_dims]
    return _made(tree, batch)


def _made(tree: Mapping[str, object], batch: torch.Size) -> TensorDict:
    td = TensorDict({}, batch_size=batch)
    for name, value in tree.items():
        if not isinstance(value, Mapping):
            td.set(name, value)
            continue
        # Agents have their own dimension, the third of a rollout and the second of rows.
        first = next((one for one in value.values() if isinstance(one, Tensor)), None)
        own = first.shape[: len(batch) + 1] if name == AGENTS and first is not None else batch
        td.set(name, _made(value, own))
    return td


def chosen(columns: Mapping[str, Tensor], index_M: Tensor) -> list[Tensor]:
    """Return the rows at these indices, of each column."""
    return [tensor.index_select(0, index_M) for tensor in columns.values()]


def named(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return tensors by these names."""
    return dict(zip(names, tensors, strict=True))


def kinds_of(
    columns: Mapping[str, Tensor], batch: tuple[int, ...], num_dims: int
) -> dict[str, Tensor]:
    """Return columns for this many examples on the meta device, of the kinds of the given ones."""
    return {
        name: torch.empty(*batch, *tensor.shape[num_dims:], dtype=tensor.dtype, device="meta")
        for name, tensor in columns.items()
    }
