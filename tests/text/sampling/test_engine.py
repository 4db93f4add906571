"""The engine's thread: requests gather, stream, are cancelled, fail and end."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import pytest

from ludus.core.errors import LudusError
from ludus.text.models.language_model import LanguageModel
from ludus.text.models.llama import Llama
from ludus.text.sampling.batch import RowBatch
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.request import Piece, RequestError, SampleRequest

REQUEST = SampleRequest(prompt=(256, 258, 104, 105, 260, 259), n=3, seed=5, max_tokens=24)
LONG = dataclasses.replace(REQUEST, n=2, max_tokens=10_000, logit_bias={260: -100.0})


@pytest.fixture
def running(model: LanguageModel) -> Iterator[SamplingEngine]:
    before = threading.active_count()
    with SamplingEngine(model, max_rows=64) as engine:
        yield engine
    assert threading.active_count() == before


def test_what_is_submitted_is_what_is_sampled(
    running: SamplingEngine, engine: SamplingEngine, mixed: list[SampleRequest]
) -> None:
    futures = [running.submit(request) for request in mixed[:20]]
    expected = engine.sample(mixed[:20])
    assert [future.result() for future in futures] == expected
    assert running.sample(mixed[:5]) == expected[:5]


def test_requests_of_many_threads_share_a_batch(
    running: SamplingEngine, engine: SamplingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    gate, step = threading.Event(), RowBatch.step

    def watched(batch: RowBatch) -> None:
        gate.wait(30)
        step(batch)
        sizes.append(batch.num_rows)

    monkeypatch.setattr(RowBatch, "step", watched)
    requests = [dataclasses.replace(REQUEST, n=1, seed=seed) for seed in range(30)]
    futures = [running.submit(request) for request in requests]
    gate.set()
    assert [future.result() for future in futures] == engine.sample(requests)
    assert max(sizes[:2]) > 20


def test_a_stream_gives_the_whole_text_and_nothing_of_a_stop_text(running: SamplingEngine) -> None:
    letters = dict.fromkeys(b"ab", 100.0)
    request = dataclasses.replace(
        REQUEST, n=8, max_tokens=60, logit_bias=letters, stop=("aba", "bb"), top_logprobs=2
    )
    pieces: dict[int, list[Piece]] = {index: [] for index in range(8)}
    samples = running.submit(request, lambda index, piece: pieces[index].append(piece)).result()
    for sample, given in zip(samples, pieces.values(), strict=True):
        assert "".join(piece.text for piece in given) == sample.text
        assert tuple(piece.token for piece in given) == sample.tokens
        assert tuple(piece.logprob for piece in given) == sample.logprobs
        assert tuple(piece.top for piece in given) == sample.top
        reasons = [piece.finish_reason for piece in given]
        assert reasons == [None] * (len(given) - 1) + [sample.finish_reason]
    assert any(sample.text for sample in samples)
    assert all(sample.finish_reason == "stop" for sample in samples)


def test_a_cancelled_request_leaves_the_batch_and_others_do_not_notice(
    running: SamplingEngine, engine: SamplingEngine
) -> None:
    began = threading.Event()
    future = running.submit(LONG, lambda index, piece: began.set())
    assert began.wait(30)
    assert future.cancel()
    assert running.sample([REQUEST]) == engine.sample([REQUEST])
    running.swap(running.model)
    assert running._batch.num_rows == 0


def test_a_listener_that_fails_fails_its_request_alone(
    running: SamplingEngine, engine: SamplingEngine
) -> None:
    def broken(index: int, piece: Piece) -> None:
        raise ConnectionResetError("the client is gone")

    future, other = running.submit(LONG, broken), running.submit(REQUEST)
    with pytest.raises(ConnectionResetError):
        future.result()
    assert [other.result()] == engine.sample([REQUEST])


def test_an_error_in_the_thread_fails_the_requests_and_later_ones_are_sampled(
    running: SamplingEngine, engine: SamplingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr("ludus.text.sampling.batch.choose", broken)
        futures = [running.submit(REQUEST), running.submit(LONG)]
        for future in futures:
            with pytest.raises(LudusError, match="sampling failed: RuntimeError: kernel failed"):
                future.result()
        assert running._batch.num_rows == 0
    assert running.sample([REQUEST]) == engine.sample([REQUEST])


def test_an_error_in_the_callers_thread_leaves_nothing_behind(
    model: LanguageModel, engine: SamplingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SamplingEngine(model)

    def broken(batch: RowBatch) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(RowBatch, "step", broken)
        with pytest.raises(LudusError, match="not enough memory to sample; allow fewer rows"):
            own.sample([REQUEST])
    assert own.sample([REQUEST]) == engine.sample([REQUEST])


def test_closing_fails_what_is_not_done(model: LanguageModel) -> None:
    engine = SamplingEngine(model, max_rows=16)
    futures = [engine.submit(LONG) for _ in range(20)]
    engine.close()
    errors = [future.exception() for future in futures]
    assert str(errors[-1]) == "the engine of small was closed"
    for call in (lambda: engine.submit(REQUEST), lambda: engine.sample([REQUEST])):
        with pytest.raises(LudusError, match="the engine of small is closed"):
            call()
    engine.close()


def test_a_wrong_request_is_refused_where_it_is_submitted(running: SamplingEngine) -> None:
    with pytest.raises(RequestError, match="n is 0"):
        running.submit(dataclasses.replace(REQUEST, n=0))


def changed(model: LanguageModel) -> LanguageModel:
    """Return a model of the same shape with other weights."""
    assert isinstance(model.module, Llama)
    network = Llama(model.module.shape)
    weights = {name: weight * 1.5 for name, weight in model.module.state_dict().items()}
    network.load_state_dict(weights)
    return dataclasses.replace(model, module=network)


@pytest.mark.parametrize("is_threaded", [False, True])
def test_a_swap_changes_requests_from_then_on(is_threaded: bool, model: LanguageModel) -> None:
    other = changed(model)
    before, after = (SamplingEngine(one).sample([REQUEST]) for one in (model, other))
    assert before != after
    with SamplingEngine(model) as engine:
        early = [engine.submit(REQUEST)] if is_threaded else []
        engine.swap(other)
        assert [future.result() for future in early] == before * is_threaded
        assert engine.sample([REQUEST]) == after
        pair = (REQUEST.prompt, after[0][0].tokens)
        assert engine.logprobs_of([pair]) == SamplingEngine(other).logprobs_of([pair])


def test_training_the_network_changes_no_sample_before_a_swap(model: LanguageModel) -> None:
    trained = changed(model)
    engine = SamplingEngine(trained)
    before = engine.sample([REQUEST])
    for weight in trained.module.parameters():
        weight.data.mul_(0.5)
    assert engine.sample([REQUEST]) == before
    engine.swap(trained)
    assert engine.sample([REQUEST]) != before


def test_a_continuation_over_the_context_is_refused(engine: SamplingEngine) -> None:
    with pytest.raises(
        LudusError, match=r"has 100 tokens of prompt and 61 after it; .* at most 160"
    ):
        engine.logprobs_of([((1,) * 100, (2,) * 61)])
    with pytest.raises(LudusError, match="has 0 tokens of prompt"):
        engine.logprobs_of([((), (2,))])
