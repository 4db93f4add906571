"""Rollouts between the stages of an iteration: held as a part, and split into minibatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import CheckpointError

Columns = Mapping[str, Tensor | None]
"""Tensors by name; None for one that there is not."""


class Form(NamedTuple):
    """How data that are neither a tensor nor columns are saved and restored."""

    to_columns: Callable[[Any], Columns]
    from_columns: Callable[[Any], Any]


class PendingData:
    """Holds data from the stage that makes them to those that use them; a part.

    Each slot is empty, or holds a tensor, tensors by name, or data of a form of its own.
    """

    def __init__(
        self,
        device: torch.device,
        forms: Mapping[str, Form] = MappingProxyType({}),
        **like: Tensor | Columns,
    ) -> None:
        """`like` gives by slot the shapes and types, which tensors on the meta device have too."""
        self._device, self._forms, self._like = device, forms, like
        self._held: dict[str, Any] = dict.fromkeys(like)

    def put(self, slot: str, data: object) -> None:
        """Fill a slot."""
        self._held[slot] = data

    def take(self, slot: str, *, releases: bool = True) -> Any:
        """Return the data of a slot, and release them."""
        data = self._held[slot]
        if data is None:
            raise CheckpointError(
                "the rollouts of this iteration are not there; resume from a checkpoint that holds them"
            )
        if releases:
            self._held[slot] = None
        return data

    def state_dict(self) -> dict[str, Any]:
        """Return the data, None for an empty slot."""
        found = dict(self._held)
        for slot, form in self._forms.items():
            found[slot] = None if found[slot] is None else form.to_columns(found[slot])
        return {slot: dict(one) if isinstance(one, Mapping) else one for slot, one in found.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the data."""
        states.check_keys(state, *self._like)
        found = {slot: self._read(state, slot, like) for slot, like in self._like.items()}
        for slot, form in self._forms.items():
            found[slot] = None if found[slot] is None else form.from_columns(found[slot])
        self._held = found

    def _read(self, state: Mapping[str, Any], key: str, like: Tensor | Columns | None) -> Any:
        if like is None or state[key] is None:
            return None
        if isinstance(like, Tensor):
            return states.like(state, key, like).to(self._device)
        saved = states.mapping(state, key)
        with states.within(key):
            states.check_keys(saved, *like)
            return {name: self._read(saved, name, own) for name, own in like.items()}


class MinibatchOrder:
    """The rows of each minibatch: every row once per epoch, in an order that is computed once per epoch."""

    def __init__(self, order: Callable[[int, int], Tensor], size: int) -> None:
        """`order` returns the indices of all rows, given the iteration and the epoch."""
        self._order_of, self._size = order, size
        self._order, self._key = torch.zeros(0, dtype=torch.int64), (-1, -1)

    def __call__(self, iteration: int, epoch: int, index: int) -> Tensor:
        """Return the indices of one minibatch."""
        if self._key != (iteration, epoch):
            self._order, self._key = self._order_of(iteration, epoch), (iteration, epoch)
        return self._order[index * self._size : (index + 1) * self._size]
