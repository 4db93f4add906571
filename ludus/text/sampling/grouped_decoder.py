"""Decode each request by itself, for models and devices where a batch changes the last bits of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ludus.text.sampling.decoder import Decoder, Prompt, Rows


class GroupedDecoder:
    """Gives each prompt a decoder of its own, whose rows stay together until the last of them has ended.

    So every computation has shapes that follow from one request.
    """

    def __init__(self, make: Callable[[], Decoder]) -> None:
        """`make` returns a decoder without rows."""
        self._make = make
        self._groups: list[Decoder] = []
        self._group_of: Rows = np.zeros(0, dtype=np.int64)
        self._index_of: Rows = np.zeros(0, dtype=np.int64)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self._group_of)

    def fresh(self) -> GroupedDecoder:
        """Return a decoder of the same weights without rows."""
        return GroupedDecoder(self._make)

    def fits(self, num_rows: int, length: int) -> bool:
        """Return whether there is memory for this many rows up to this length."""
        return self._make().fits(num_rows, length)

    def open(self, prompts: Sequence[Prompt], counts: Sequence[int]) -> Tensor:
        """Append `counts[i]` rows that begin with prompt i; return their logits, one row each."""
        parts = []
        for prompt, count in zip(prompts, counts, strict=True):
            decoder = self._make()
            parts.append(decoder.open([prompt], [count]))
            new = np.full(count, len(self._groups), dtype=np.int64)
            self._group_of = np.concatenate((self._group_of, new))
            self._index_of = np.concatenate((self._index_of, np.arange(count)))
            self._groups.append(decoder)
        return torch.cat(parts)

    def advance(self, tokens: Rows) -> Tensor:
        """Append a token to each row, and return the logits of the next."""
        found: Tensor | None = None
        for number, decoder in enumerate(self._groups):
            (rows,) = np.nonzero(self._group_of == number)
            own = np.zeros(decoder.num_rows, dtype=np.int64)
            own[self._index_of[rows]] = tokens[rows]
            logits_RV = decoder.advance(own)
            if found is None:
                found = logits_RV.new_empty((self.num_rows, logits_RV.shape[1]))
            picked = torch.as_tensor(self._index_of[rows], device=logits_RV.device)
            found[torch.as_tensor(rows, device=logits_RV.device)] = logits_RV[picked]
        assert found is not None
        return found

    def move(self, sources: Rows, targets: Rows, num_rows: int) -> None:
        """Overwrite the rows `targets` by `sources`, and keep the first `num_rows` only."""
        for array in (self._group_of, self._index_of):
            array[targets] = array[sources]
        self._index_of = self._index_of[:num_rows]
        used, self._group_of = np.unique(self._group_of[:num_rows], return_inverse=True)
        self._groups = [self._groups[number] for number in used.tolist()]

    def logprobs(self, sequences: Sequence[tuple[Prompt, Prompt]]) -> list[list[float]]:
        """Return the log-probability of each token of continuations, given the prompts before them."""
        decoder = self._make()
        return [found for one in sequences for found in decoder.logprobs([one])]
