"""The same request gets the same bits, whatever else is sampled."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.text.models.language_model import LanguageModel
from ludus.text.models.llama import Llama, LlamaShape, initialise
from ludus.text.sampling import llama_decoder
from ludus.text.sampling.batch import RowBatch
from ludus.text.sampling.decoder import Rows
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.invariance import check_invariance
from ludus.text.sampling.llama_decoder import LlamaDecoder
from ludus.text.sampling.llama_weights import arranged
from ludus.text.sampling.request import Sample, SampleRequest
from ludus.text.sampling.texts import Vocabulary
from ludus.text.sampling.ticket import Ticket


@pytest.fixture(scope="module")
def alone(mixed: list[SampleRequest], engine: SamplingEngine) -> list[list[Sample]]:
    """The samples of each request by itself."""
    torch.set_num_threads(1)
    return [engine.sample([request])[0] for request in mixed]


@pytest.mark.parametrize("max_rows", [17, 64, 512])
def test_a_batch_changes_no_bit(
    max_rows: int, mixed: list[SampleRequest], alone: list[list[Sample]], model: LanguageModel
) -> None:
    assert SamplingEngine(model, max_rows=max_rows).sample(mixed) == alone


def test_the_order_changes_no_bit(
    mixed: list[SampleRequest], alone: list[list[Sample]], engine: SamplingEngine
) -> None:
    order = list(range(len(mixed)))
    random.Random(0).shuffle(order)
    found = engine.sample([mixed[number] for number in order])
    assert found == [alone[number] for number in order]


def test_two_threads_change_no_bit(
    mixed: list[SampleRequest], alone: list[list[Sample]], model: LanguageModel
) -> None:
    torch.set_num_threads(2)
    assert SamplingEngine(model, max_rows=64).sample(mixed[:8]) == alone[:8]
    assert SamplingEngine(model).sample(mixed[3:4]) == alone[3:4]


def test_joining_late_changes_no_bit(
    mixed: list[SampleRequest], alone: list[list[Sample]], model: LanguageModel
) -> None:
    decoder = SamplingEngine(model)._decoder
    batch = RowBatch(decoder, Vocabulary(model.tokenizer, 264), context=160, max_rows=64)
    found: dict[int, list[Sample]] = {}
    for number, request in enumerate(mixed):

        def keep(samples: list[Sample], number: int = number) -> None:
            found[number] = samples

        batch.add(Ticket(request, keep, pytest.fail))
        for _ in range(number % 4):
            batch.step()
    while not batch.is_idle:
        batch.step()
    assert [found[number] for number in range(len(mixed))] == alone


def test_each_request_by_itself_gives_the_same_samples(
    mixed: list[SampleRequest], alone: list[list[Sample]], model: LanguageModel
) -> None:
    engine = SamplingEngine(model, max_rows=64, batching="alone")
    assert engine.sample(mixed[:20]) == alone[:20]


class Careless(LlamaDecoder):
    """Computes as many rows as there are, so that one row alone goes through another kernel."""

    def advance(self, tokens: Rows) -> Tensor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(llama_decoder, "rounded", lambda number, to=16: number)
            return super().advance(tokens)

    def fresh(self) -> Careless:
        return Careless(self.weights, cache_bytes=1 << 30)


def checked(decoder: LlamaDecoder, model: LanguageModel) -> None:
    vocabulary = Vocabulary(model.tokenizer, 264)
    check_invariance(
        decoder, vocabulary, context=160, max_rows=64, num_parameters=model.num_parameters
    )


def test_the_check_passes_here(model: LanguageModel, engine: SamplingEngine) -> None:
    engine.check_batch_invariance()


def test_the_check_finds_a_decoder_whose_bits_depend_on_the_batch(model: LanguageModel) -> None:
    careful = LlamaDecoder(arranged(model.module), cache_bytes=1 << 30)  # type: ignore[arg-type]
    checked(careful, model)
    careless = Careless(careful.weights, cache_bytes=1 << 30)
    with pytest.raises(LudusError, match=r"use one thread, or .* by itself: batching 'alone'"):
        checked(careless, model)


class Neighbourly(LlamaDecoder):
    """Lets each row's logits take a little from the row before it."""

    def advance(self, tokens: Rows) -> Tensor:
        logits = super().advance(tokens)
        return logits + 1e-6 * logits.roll(1, 0) * (len(logits) > 1)

    def fresh(self) -> Neighbourly:
        return Neighbourly(self.weights, cache_bytes=1 << 30)


def test_the_check_finds_a_leak_between_rows(model: LanguageModel) -> None:
    weights = arranged(model.module)  # type: ignore[arg-type]
    with pytest.raises(LudusError, match="gets other bits together with others than alone"):
        checked(Neighbourly(weights, cache_bytes=1 << 30), model)


def test_rows_beyond_the_memory_wait(model: LanguageModel, mixed: list[SampleRequest]) -> None:
    tight = SamplingEngine(model, cache_bytes=1 << 20)
    most = 0

    class Watched(LlamaDecoder):
        def advance(self, tokens: Rows) -> Tensor:
            nonlocal most
            most = max(most, len(tokens))
            return super().advance(tokens)

    decoder = Watched(arranged(model.module), cache_bytes=1 << 20)  # type: ignore[arg-type]
    tight._batch = RowBatch(decoder, Vocabulary(model.tokenizer, 264), context=160, max_rows=512)
    requests = [SampleRequest((1, 2), 1, seed, 30) for seed in range(100)]
    assert tight.sample(requests) == SamplingEngine(model).sample(requests)
    # 64 places of 2 layers, 2 heads, 16 features, keys and values, in 4 bytes: 32 KiB a row.
    assert most == 32


def test_a_step_of_rows_of_very_different_lengths_masks_each_at_its_own(
    model: LanguageModel,
) -> None:
    decoder = LlamaDecoder(arranged(model.module), cache_bytes=1 << 30)  # type: ignore[arg-type]
    prompts = [(5,) * length for length in (1, 150, 60)]
    decoder.open(prompts, [1, 1, 1])
    logits = decoder.advance(np.asarray([7, 7, 7]))
    for row, prompt in enumerate(prompts):
        with torch.no_grad():
            expected = model.logits(torch.tensor([(*prompt, 7)]))[0, -1]
        torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=1e-4)


def test_long_prompts_are_computed_in_parts(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = arranged(model.module)  # type: ignore[arg-type]
    prompts = [tuple(range(length)) for length in (100, 97, 40)]
    whole = LlamaDecoder(weights, cache_bytes=1 << 30).open(prompts, [1, 1, 1])
    monkeypatch.setattr(llama_decoder, "_MAX_SCORES", 4 * 104 * 32)
    parts = LlamaDecoder(weights, cache_bytes=1 << 30).open(prompts, [1, 1, 1])
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
    for row, prompt in enumerate(prompts):
        with torch.no_grad():
            expected = model.logits(torch.tensor([prompt]))[0, -1]
        torch.testing.assert_close(parts[row], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("head_width", [8, 16, 32])
def test_a_long_neighbour_changes_no_bit_of_a_short_row(num_kv_heads: int, head_width: int) -> None:
    shape = LlamaShape(264, 32, 1, 4, num_kv_heads, head_width, 64, 400)
    network = Llama(shape)
    initialise(network, torch.Generator().manual_seed(0), embedding_std=1.0)
    weights = arranged(network)
    alone, together = (LlamaDecoder(weights, cache_bytes=1 << 30) for _ in range(2))
    rows = [alone.open([(5, 6, 7)], [1]), together.open([(5, 6, 7), tuple(range(250))], [1, 1])]
    assert torch.equal(rows[0][0], rows[1][0])
    for token in range(40):
        own, other = alone.advance(np.asarray([token])), together.advance(np.asarray([token, 9]))
        assert torch.equal(own[0], other[0])


def test_the_rows_of_a_cancelled_request_leave_at_the_next_step(
    model: LanguageModel, engine: SamplingEngine
) -> None:
    decoder = LlamaDecoder(arranged(model.module), cache_bytes=1 << 30)  # type: ignore[arg-type]
    batch = RowBatch(decoder, Vocabulary(model.tokenizer, 264), context=160, max_rows=64)
    found: list[list[Sample]] = []
    long = SampleRequest((1, 2, 3), 4, 0, 100, logit_bias={260: -100.0})
    first, second = Ticket(long, pytest.fail, pytest.fail), Ticket(long, found.append, pytest.fail)
    waiting = Ticket(long, pytest.fail, pytest.fail)
    for ticket in (first, second):
        batch.add(ticket)
    batch.step()
    batch.add(waiting)
    first.is_cancelled = waiting.is_cancelled = batch.has_cancelled = True
    batch.step()
    assert (batch.num_rows, decoder.num_rows) == (4, 4)
    while not batch.is_idle:
        batch.step()
    assert found == engine.sample([long])
