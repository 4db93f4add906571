"""The pool: which rows were queried, in what order and round, and their labels.

Shapes: N examples of the pool, A queried, L labelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import CheckpointError, LudusError


class Pool:
    """Rows are queried in order, then each gets its label; no row is queried twice. A part."""

    def __init__(self, size: int, *, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> None:
        """`size` is the number of examples; dtype and shape are those of one label."""
        self.size = size
        self._asked_A = torch.empty(0, dtype=torch.int64)
        self._rounds_A = torch.empty(0, dtype=torch.int64)
        self._labels_L = torch.empty((0, *shape), dtype=dtype)

    @property
    def asked(self) -> Tensor:
        """The queried rows, in order."""
        return self._asked_A

    @property
    def rounds(self) -> Tensor:
        """The round in which each of these was queried."""
        return self._rounds_A

    @property
    def num_labelled(self) -> int:
        """Number of labelled rows: the first of those queried."""
        return len(self._labels_L)

    @property
    def labelled(self) -> Tensor:
        """The labelled rows, in the order of the queries."""
        return self._asked_A[: self.num_labelled]

    @property
    def labels(self) -> Tensor:
        """Their labels."""
        return self._labels_L

    @property
    def open(self) -> Tensor:
        """The queried rows without a label yet."""
        return self._asked_A[self.num_labelled :]

    @property
    def unasked(self) -> Tensor:
        """The rows not yet queried, ascending."""
        is_free_N = torch.ones(self.size, dtype=torch.bool)
        is_free_N[self._asked_A] = False
        return is_free_N.nonzero()[:, 0]

    def ask(self, rows: Tensor, *, number: int) -> None:
        """Query the labels of these rows, in this order, in the round of this number."""
        rows = rows.to("cpu", torch.int64)
        free = self.unasked
        if not bool(torch.isin(rows, free).all()) or len(rows.unique()) < len(rows):
            raise LudusError(
                f"a strategy chose rows that are not in the pool, or one twice; choose among"
                f" {len(free)} rows without a label, each once"
            )
        self._asked_A = torch.cat([self._asked_A, rows])
        self._rounds_A = torch.cat([self._rounds_A, torch.full_like(rows, number)])

    def answer(self, labels: Tensor) -> None:
        """Set the labels of the open rows, in the order of the queries."""
        if len(labels) != len(self.open):
            raise LudusError(
                f"{len(labels)} labels were given for {len(self.open)} open rows; give one for each"
            )
        self._labels_L = torch.cat([self._labels_L, labels.to(self._labels_L)])

    def state_dict(self) -> dict[str, Any]:
        rows = {"asked": self._asked_A, "rounds": self._rounds_A, "labels": self._labels_L}
        return {"size": self.size, **rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state in place."""
        states.check_keys(state, "size", "asked", "rounds", "labels")
        if (size := states.whole(state, "size")) != self.size:
            raise CheckpointError(
                f"the pool has {self.size} examples now, and had {size} when the run was saved, so its rows"
                " may be others; give it the data that it had, or start a new run"
            )
        asked_A = states.shaped(state, "asked", self._asked_A, (None,))
        rounds_A = states.shaped(state, "rounds", self._rounds_A, (len(asked_A),))
        shape = None, *self._labels_L.shape[1:]
        labels_L = states.shaped(state, "labels", self._labels_L, shape, finite=True)
        states.between("asked", asked_A, low=0, high=self.size - 1)
        if len(asked_A.unique()) < len(asked_A):
            raise states.StateError("asked", "names a row twice")
        if len(labels_L) > len(asked_A):
            raise states.StateError("labels", "are more than were asked for")
        found = asked_A, rounds_A, labels_L
        self._asked_A, self._rounds_A, self._labels_L = (one.clone() for one in found)
