"""Check that a request gets the same bits in any batch, on this machine and with this model."""

from __future__ import annotations

import torch

from ludus.core.errors import LudusError
from ludus.seeds import generator
from ludus.text.sampling.batch import RowBatch
from ludus.text.sampling.decoder import Decoder
from ludus.text.sampling.request import Sample, SampleRequest
from ludus.text.sampling.texts import Vocabulary
from ludus.text.sampling.ticket import Ticket

_LENGTHS = (1, 3, 8, 9, 15, 16, 17, 24, 31, 33, 40, 63, 65, 100, 129, 257)
_MAX_WORK = 1 << 31
"""About the number of multiplications that the check may take."""


def sample_all(batch: RowBatch, requests: list[SampleRequest]) -> list[list[Sample]]:
    """Return the samples of requests, all in one batch."""
    found: dict[int, list[Sample]] = {}
    failed: list[BaseException] = []
    for number, request in enumerate(requests):

        def keep(samples: list[Sample], number: int = number) -> None:
            found[number] = samples

        batch.add(Ticket(request, keep, failed.append))
    while not batch.is_idle:
        batch.step()
    return [found[number] for number in range(len(requests))]


def check_invariance(
    decoder: Decoder, vocabulary: Vocabulary, *, context: int, max_rows: int, num_parameters: int
) -> None:
    """Raise LudusError if a request's samples differ between alone and together with others.

    The check grows less thorough with the size of the model, so that it stays short.
    """
    lengths = [length for length in _LENGTHS if length < context]
    num_tokens = 6
    affordable = _MAX_WORK // (num_parameters * num_tokens * 16)
    requests = _requests(lengths[-max(4, affordable) :], len(vocabulary.bytes), num_tokens)
    unending = vocabulary.endless()
    together = sample_all(
        RowBatch(decoder.fresh(), unending, context=context, max_rows=max_rows), requests
    )
    alone = RowBatch(decoder.fresh(), unending, context=context, max_rows=max_rows)
    for request, found in zip(requests, together, strict=True):
        (own,) = sample_all(alone, [request])
        if own != found:
            raise LudusError(
                f"a request of {len(request.prompt)} tokens gets other bits together with others than alone"
                f" (with {torch.get_num_threads()} threads), so samples would depend on the load; use one"
                " thread, or sample each request by itself: batching 'alone'"
            )


def _requests(lengths: list[int], vocab_size: int, num_tokens: int) -> list[SampleRequest]:
    drawn = generator(0, "batch invariance")
    return [
        SampleRequest(
            prompt=tuple(torch.randint(vocab_size, (length,), generator=drawn).tolist()),
            n=1 + 4 * (number % 3),
            seed=number,
            max_tokens=num_tokens,
            logprobs=True,
        )
        for number, length in enumerate(lengths)
    ]
