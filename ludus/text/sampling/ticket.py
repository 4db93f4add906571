"""A request on its way through a batch, and the rows that sample it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ludus.text.chat import TokenLogprob
from ludus.text.sampling.request import OnToken, Piece, Sample, SampleRequest
from ludus.text.sampling.texts import TextStream


@dataclass(eq=False)
class Ticket:
    """A request: which of its samples have begun, and which are done."""

    request: SampleRequest
    on_done: Callable[[list[Sample]], object]
    on_error: Callable[[BaseException], object]
    on_token: OnToken | None = None
    num_begun: int = 0
    is_cancelled: bool = False
    stops: tuple[bytes, ...] = ()
    samples: dict[int, Sample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stops = tuple(text.encode("utf-8", "replace") for text in self.request.stop)

    def take(self, index: int, sample: Sample) -> None:
        """Take a sample that is done; with the last one, hand over all in order."""
        self.samples[index] = sample
        if len(self.samples) == self.request.n and not self.is_cancelled:
            self.on_done([self.samples[one] for one in range(self.request.n)])

    def fail(self, error: BaseException) -> None:
        """Give the request up."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.on_error(error)


class Row:
    """One sample on its way."""

    def __init__(self, ticket: Ticket, index: int) -> None:
        self.ticket, self.index = ticket, index
        self.top: list[tuple[TokenLogprob, ...]] = []
        self._stream = TextStream(ticket.stops) if ticket.on_token is not None else None

    def show(self, token: int, data: bytes, logprob: float | None, sample: Sample | None) -> None:
        """Call `on_token` with the last token; `sample` is the whole one if that was its last."""
        assert self._stream is not None
        assert self.ticket.on_token is not None
        text = self._stream.push(data) if sample is None else self._stream.finish(sample.text)
        reason = None if sample is None else sample.finish_reason
        top = self.top[-1] if self.top else ()
        if self.ticket.is_cancelled:
            return
        try:
            self.ticket.on_token(self.index, Piece(token, text, logprob, top, reason))
        except Exception as error:
            self.ticket.fail(error)
