"""Find state that would be lost: attributes that change between boundaries and belong to no part."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.core.run import Run
from ludus.core.trainer import Trainer
from ludus.core.unsaved import derived_names, served
from ludus.store import codec
from ludus.store.checkpoint import digest_of

MAX_BOUNDARIES = 60
_PLAIN = (bool, int, float, str, bytes, type(None))


class UndeclaredState:
    """An observer that looks at every attribute of a trainer at every boundary."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._first: dict[str, str] = {}
        self._changed: dict[str, Tensor | None] = {}
        self._saved_storages: set[int] = set()
        self._num_seen = 0

    def __call__(self, run: Run) -> None:
        """Compare each attribute with what it was at the first boundary."""
        self._num_seen += 1
        if self._num_seen > MAX_BOUNDARIES:
            return
        parts = self._trainer.all_parts()
        for part in parts.values():
            _, tensors, _ = codec.encode(dict(part.state_dict()))
            self._saved_storages |= {_storage(tensor) for tensor in tensors.values()}
        known = served(self._trainer, parts.values())
        seen = {id(thing) for thing in (self, self._trainer, *known)}
        for path, value in self._attributes(seen):
            digest = digest_of({"value": value})
            # What was not there at the first boundary has appeared since.
            first = self._first.setdefault(path, digest if self._num_seen == 1 else "")
            if first != digest:
                self._changed[path] = value if isinstance(value, Tensor) else None

    def found(self) -> list[str]:
        """Return the paths of attributes that changed, yet are in no part's state.

        A callback without a state of its own is named in a sentence, as the run itself names it.
        """
        paths = sorted(
            path
            for path, value in self._changed.items()
            if value is None or _storage(value) not in self._saved_storages
        )
        own = self._trainer.inexact_because()
        return paths + [reason for reason in self._trainer.all_reasons() if reason not in own]

    def _attributes(self, seen: set[int]) -> Iterator[tuple[str, Any]]:
        ignored = derived_names(self._trainer)
        for name, value in vars(self._trainer).items():
            if name not in ignored:
                yield from _leaves(value, name, seen, depth=3)


def _leaves(value: object, path: str, seen: set[int], *, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (*_PLAIN, Tensor, np.ndarray)):
        yield path, value
        return
    is_machinery = isinstance(
        value, type | types.ModuleType | types.FunctionType | types.MethodType
    )
    if depth == 0 or id(value) in seen or is_machinery:
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        yield from ((f"{path}.{name}", tensor) for name, tensor in value.state_dict().items())
    elif isinstance(value, torch.Generator):
        yield path, value.get_state()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]", seen, depth=depth - 1)
    elif isinstance(value, list | tuple):
        yield f"len({path})", len(value)
        for index, item in enumerate(value[:50]):
            yield from _leaves(item, f"{path}[{index}]", seen, depth=depth - 1)
    elif hasattr(value, "__dict__"):
        for name, item in vars(value).items():
            yield from _leaves(item, f"{path}.{name}", seen, depth=depth - 1)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
