"""Continuous batching: rows join as soon as there is room, take one token a step, and leave when they end.

RowBatch.step
  drop        the rows of cancelled requests
  advance     the rows there are, by the token that each has chosen
  join        rows of waiting requests; equal prompts are computed once
  choose      the next token of every row, by one uniform number each
  finish      rows that ended hand over their samples, and the last rows take their places
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.text.chat import TokenLogprob
from ludus.text.sampling.choosing import Penalties, Temper, choose, token_logprobs
from ludus.text.sampling.decoder import Decoder, Rows
from ludus.text.sampling.request import Sample
from ludus.text.sampling.rows import RowTable
from ludus.text.sampling.texts import Vocabulary, cut
from ludus.text.sampling.ticket import Row, Ticket
from ludus.text.sampling.uniforms import stream_key, uniforms


class RowBatch:
    """The rows that are sampled together; it has no thread of its own."""

    def __init__(
        self, decoder: Decoder, vocabulary: Vocabulary, *, context: int, max_rows: int
    ) -> None:
        self._decoder, self._vocabulary = decoder, vocabulary
        self._context, self._max_rows = context, max_rows
        self._waiting: deque[Ticket] = deque()
        self._rows: list[Row] = []
        self._table = RowTable(max_rows)
        self._penalties = Penalties(len(vocabulary.bytes))
        self._stop_sets: dict[tuple[bytes, ...], int] = {(): 0}
        self._completing = np.zeros((1, len(vocabulary.bytes)), dtype=np.bool_)
        self.has_cancelled = False
        """Set it after cancelling a ticket."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to sample."""
        return not self._rows and not self._waiting

    @property
    def num_rows(self) -> int:
        """The number of rows that are sampled now."""
        return len(self._rows)

    def tickets(self) -> list[Ticket]:
        """Return the requests that are not done."""
        return list(dict.fromkeys([*(row.ticket for row in self._rows), *self._waiting]))

    def add(self, ticket: Ticket) -> None:
        """Add a request; it joins at the next step that has room for it."""
        self._waiting.append(ticket)

    @torch.inference_mode()
    def step(self) -> None:
        """Sample one token of every row."""
        if self.has_cancelled:
            self.has_cancelled = False
            self._leave([r for r, row in enumerate(self._rows) if row.ticket.is_cancelled])
        known = self._decoder.advance(self._table.last_tokens) if self._rows else None
        joined = self._join()
        parts = [logits for logits in (known, joined) if logits is not None]
        if parts:
            self._sample(parts[0] if len(parts) == 1 else torch.cat(parts))

    def _sample(self, logits_RV: Tensor) -> None:
        """Choose a token of every row, and finish those that end with it."""
        table, size = self._table, self._table.num_rows
        penalised = np.nonzero(table.is_penalised[:size])[0]
        biased = self._penalties.applied(logits_RV, penalised) if len(penalised) else logits_RV
        tokens = choose(
            biased,
            Temper(
                table.inverse_temperatures[:size],
                table.is_greedy[:size],
                table.top_p[:size],
                uniforms(table.keys[:size], table.counts[:size]),
            ),
        )
        table.record(tokens)
        self._note_logprobs(logits_RV, tokens)
        for row in penalised.tolist():
            self._penalties.note(row, int(tokens[row]), self._rows[row].ticket.request)
        is_stop = self._vocabulary.is_end[tokens]
        (completing,) = np.nonzero(self._completing[table.stops[:size], tokens])
        for row in completing.tolist():
            data = self._vocabulary.join(table.tokens_of(row))
            is_stop[row] |= cut(data, self._rows[row].ticket.stops) is not None
        has_ended = is_stop | (table.counts[:size] >= table.limits[:size])
        ended: list[int] = np.nonzero(has_ended)[0].tolist()
        samples = {row: self._finished(row, is_stop=bool(is_stop[row])) for row in ended}
        for row in np.nonzero(table.is_watched[:size])[0].tolist():
            self._show(row, int(tokens[row]), samples.get(row))
        for row, sample in samples.items():
            self._rows[row].ticket.take(self._rows[row].index, sample)
        self._leave(ended)

    def _join(self) -> Tensor | None:
        """Append the rows of waiting requests as far as there is room; return their logits."""
        joining: list[tuple[Ticket, int]] = []
        first, count = len(self._rows), 0
        while self._waiting:
            ticket = self._waiting[0]
            if ticket.is_cancelled:
                self._waiting.popleft()
                continue
            # A part of a request is always of the same size, whatever else is sampled.
            size = min(ticket.request.n - ticket.num_begun, self._max_rows)
            if not self._has_room(ticket, first + count, size):
                break
            joining.append((ticket, size))
            self._append(ticket, size)
            count += size
            if ticket.num_begun == ticket.request.n:
                self._waiting.popleft()
        if not joining:
            return None
        prompts = [ticket.request.prompt for ticket, _ in joining]
        return self._decoder.open(prompts, [size for _, size in joining])

    def _has_room(self, ticket: Ticket, num_rows: int, size: int) -> bool:
        if num_rows == 0:
            return True
        end = len(ticket.request.prompt) + self._limit(ticket)
        longest = max(end, int(self._table.ends[:num_rows].max()))
        return num_rows + size <= self._max_rows and self._decoder.fits(num_rows + size, longest)

    def _limit(self, ticket: Ticket) -> int:
        request = ticket.request
        return min(request.max_tokens, self._context - len(request.prompt))

    def _append(self, ticket: Ticket, size: int) -> None:
        """Write the numbers of new rows into the table."""
        request, table = ticket.request, self._table
        indices = range(ticket.num_begun, ticket.num_begun + size)
        place = table.append(size)
        table.keys[place] = [stream_key(request.seed, index) for index in indices]
        table.limits[place] = self._limit(ticket)
        table.ends[place] = len(request.prompt) + self._limit(ticket)
        table.is_greedy[place] = request.temperature == 0
        table.inverse_temperatures[place] = 1 / request.temperature if request.temperature else 1
        table.top_p[place] = request.top_p
        table.stops[place] = self._stop_set(ticket.stops)
        table.has_logprobs[place] = request.logprobs or request.top_logprobs > 0
        table.num_top[place] = request.top_logprobs
        table.is_penalised[place] = request.changes_logits
        table.is_watched[place] = ticket.on_token is not None
        if request.changes_logits:
            self._penalties.begin(range(place.start, place.stop), request)
        self._rows += [Row(ticket, index) for index in indices]
        ticket.num_begun += size

    def _stop_set(self, stops: tuple[bytes, ...]) -> int:
        """Return the number of a set of stop texts."""
        found = self._stop_sets.get(stops)
        if found is None:
            found = self._stop_sets[stops] = len(self._completing)
            one = self._vocabulary.completing(stops)
            self._completing = np.concatenate((self._completing, one[None]))
        return found

    def _note_logprobs(self, logits_RV: Tensor, tokens: Rows) -> None:
        """Record the log-probabilities of the rows that want them."""
        table = self._table
        (wanting,) = np.nonzero(table.has_logprobs[: len(tokens)])
        if not len(wanting):
            return
        if len(wanting) < len(tokens):
            logits_RV = logits_RV[torch.as_tensor(wanting, device=logits_RV.device)]
        logprobs_RV, own = token_logprobs(logits_RV, tokens[wanting])
        table.record_logprobs(wanting, own)
        num_top = table.num_top[wanting]
        if num_top.any():
            values, ids = (one.tolist() for one in logprobs_RV.topk(int(num_top.max())))
            for place in np.nonzero(num_top)[0].tolist():
                row = int(wanting[place])
                pairs = zip(ids[place][: num_top[place]], values[place], strict=False)
                self._rows[row].top.append(tuple(TokenLogprob(*pair) for pair in pairs))

    def _finished(self, row: int, *, is_stop: bool) -> Sample:
        """Return the sample of a row that ended."""
        tokens, stops = self._table.tokens_of(row), self._rows[row].ticket.stops
        data = self._vocabulary.join(tokens)
        before = cut(data, stops) if stops else None
        return Sample(
            tokens=tuple(tokens),
            text=(data if before is None else before).decode("utf-8", "replace"),
            finish_reason="stop" if is_stop else "length",
            logprobs=self._table.logprobs_of(row),
            top=tuple(self._rows[row].top),
        )

    def _show(self, row: int, token: int, sample: Sample | None) -> None:
        """Hand out the last token of a row that is watched."""
        logprobs = self._table.logprobs_of(row)
        data = self._vocabulary.bytes[token]
        self._rows[row].show(token, data, logprobs[-1] if logprobs else None, sample)
        self.has_cancelled |= self._rows[row].ticket.is_cancelled

    def _leave(self, rows: Iterable[int]) -> None:
        """Remove rows; the last ones take their places."""
        leaving = set(rows)
        if not leaving:
            return
        kept = len(self._rows) - len(leaving)
        targets = sorted(row for row in leaving if row < kept)
        sources = [row for row in range(kept, len(self._rows)) if row not in leaving]
        for source, target in zip(sources, targets, strict=True):
            self._rows[target] = self._rows[source]
        del self._rows[kept:]
        moved, to = _as_rows(sources), _as_rows(targets)
        self._penalties.move(moved, to)
        self._table.move(moved, to, kept)
        self._decoder.move(moved, to, kept)
        if not self._rows:
            self._stop_sets, self._completing = {(): 0}, self._completing[:1]


def _as_rows(numbers: list[int]) -> NDArray[np.int64]:
    return np.asarray(numbers, dtype=np.int64)
