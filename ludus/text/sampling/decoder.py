"""Decoder: computes the logits of the next token for rows of different lengths, and holds their caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Prompt = tuple[int, ...]
Rows = NDArray[np.int64]


class Decoder(Protocol):
    """Rows are numbered from 0 without gaps; each is a sequence that grows by one token a step."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    def open(self, prompts: Sequence[Prompt], counts: Sequence[int]) -> Tensor:
        """Append `counts[i]` rows that begin with prompt i; return their logits, one row each."""

    def advance(self, tokens: Rows) -> Tensor:
        """Append a token to each row, and return the logits of the next."""

    def move(self, sources: Rows, targets: Rows, num_rows: int) -> None:
        """Overwrite the rows `targets` by `sources`, and keep the first `num_rows` only."""

    def fresh(self) -> Decoder:
        """Return a decoder of the same weights without rows."""

    def fits(self, num_rows: int, length: int) -> bool:
        """Return whether there is memory for this many rows up to this length."""

    def logprobs(self, sequences: Sequence[tuple[Prompt, Prompt]]) -> list[list[float]]:
        """Return the log-probability of each token of continuations, given the prompts before them."""
