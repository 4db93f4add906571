"""The numbers of all rows of a batch, one array for each, so that a step handles all rows at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.text.sampling.decoder import Rows

_FIRST_LENGTH = 32


class RowTable:
    """Arrays with a place for each row; rows 0 to `num_rows` are in use."""

    def __init__(self, capacity: int) -> None:
        self.num_rows = 0
        self.keys = np.zeros(capacity, dtype=np.uint64)
        """The key of each row's random numbers."""
        self.counts = np.zeros(capacity, dtype=np.int64)
        """The number of tokens sampled."""
        self.limits = np.zeros(capacity, dtype=np.int64)
        """The number of tokens to sample at most."""
        self.ends = np.zeros(capacity, dtype=np.int64)
        """The length of the sequence if it reaches its limit."""
        self.inverse_temperatures = np.ones(capacity, dtype=np.float32)
        self.is_greedy = np.zeros(capacity, dtype=np.bool_)
        self.top_p = np.ones(capacity, dtype=np.float32)
        self.stops = np.zeros(capacity, dtype=np.int64)
        """The number of the row's set of stop texts."""
        self.has_logprobs = np.zeros(capacity, dtype=np.bool_)
        self.num_top = np.zeros(capacity, dtype=np.int64)
        self.is_penalised = np.zeros(capacity, dtype=np.bool_)
        self.is_watched = np.zeros(capacity, dtype=np.bool_)
        """Whether each token is handed out at once."""
        self.tokens = np.zeros((capacity, _FIRST_LENGTH), dtype=np.int64)
        self.logprobs = np.zeros((capacity, _FIRST_LENGTH), dtype=np.float32)
        self._arrays: tuple[NDArray[np.generic], ...] = (
            *(self.keys, self.counts, self.limits, self.ends, self.inverse_temperatures),
            *(self.is_greedy, self.top_p, self.stops, self.has_logprobs, self.num_top),
            *(self.is_penalised, self.is_watched),
        )

    def append(self, count: int) -> slice:
        """Add rows without tokens; return their place."""
        place = slice(self.num_rows, self.num_rows + count)
        self.num_rows += count
        self.counts[place] = 0
        return place

    def record(self, tokens: Rows) -> None:
        """Add a token to each row."""
        rows = np.arange(self.num_rows)
        counts = self.counts[: self.num_rows]
        if counts.max() == self.tokens.shape[1]:
            self.tokens = np.concatenate((self.tokens, np.zeros_like(self.tokens)), axis=1)
            self.logprobs = np.concatenate((self.logprobs, np.zeros_like(self.logprobs)), axis=1)
        self.tokens[rows, counts] = tokens
        counts += 1

    def record_logprobs(self, rows: Rows, logprobs: NDArray[np.float32]) -> None:
        """Set the log-probability of the last token of rows."""
        self.logprobs[rows, self.counts[rows] - 1] = logprobs

    @property
    def last_tokens(self) -> Rows:
        """The last token of each row."""
        found: Rows = self.tokens[np.arange(self.num_rows), self.counts[: self.num_rows] - 1]
        return found

    def tokens_of(self, row: int) -> list[int]:
        """Return all tokens of a row."""
        found: list[int] = self.tokens[row, : self.counts[row]].tolist()
        return found

    def logprobs_of(self, row: int) -> tuple[float, ...]:
        """Return the log-probabilities of the tokens of a row; none if they were not asked for."""
        if not self.has_logprobs[row]:
            return ()
        return tuple(self.logprobs[row, : self.counts[row]].tolist())

    def move(self, sources: Rows, targets: Rows, num_rows: int) -> None:
        """Overwrite the rows `targets` by `sources`, and keep the first `num_rows` only."""
        if len(sources):
            for array in (*self._arrays, self.tokens, self.logprobs):
                array[targets] = array[sources]
        self.num_rows = num_rows
