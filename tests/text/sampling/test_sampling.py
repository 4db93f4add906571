"""Samples are those of the model's own distribution, token by token."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.text.models.language_model import LanguageModel
from ludus.text.models.llama import Llama, initialise
from ludus.text.sampling.choosing import Temper, choose, nucleus
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.request import PromptTooLong, RequestError, SampleRequest
from ludus.text.sampling.uniforms import stream_key, uniforms
from tests.text.sampling.conftest import SHAPE

PLAIN = SampleRequest(prompt=(256, 258, 104, 105, 260, 259), n=3, seed=5, max_tokens=24)


def slow_samples(model: LanguageModel, request: SampleRequest) -> list[list[int]]:
    """Sample by calling the whole network for every token."""
    found = []
    for index in range(request.n):
        tokens = list(request.prompt)
        key = np.asarray([stream_key(request.seed, index)], dtype=np.uint64)
        for position in range(request.max_tokens):
            with torch.no_grad():
                logits = model.logits(torch.tensor([tokens]))[0, -1]
            if request.temperature == 0:
                token = int(logits.argmax())
            else:
                sums = (logits / request.temperature).softmax(-1).cumsum(-1)
                uniform = float(uniforms(key, np.asarray([position]))[0])
                token = int((sums <= uniform * sums[-1]).sum())
            tokens.append(token)
            if token == model.tokenizer.end_of_message:
                break
        found.append(tokens[len(request.prompt) :])
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("length", [1, 8, 30])
def test_samples_equal_those_of_the_whole_network(
    temperature: float, length: int, model: LanguageModel, engine: SamplingEngine
) -> None:
    prompt = tuple(range(60, 60 + length))
    request = dataclasses.replace(PLAIN, prompt=prompt, temperature=temperature)
    (samples,) = engine.sample([request])
    assert [list(sample.tokens) for sample in samples] == slow_samples(model, request)


def test_tokens_come_as_often_as_the_model_says(
    model: LanguageModel, engine: SamplingEngine
) -> None:
    request = dataclasses.replace(PLAIN, n=4000, max_tokens=1)
    (samples,) = engine.sample([request])
    counts = np.bincount([sample.tokens[0] for sample in samples], minlength=264)
    with torch.no_grad():
        expected = model.logits(torch.tensor([PLAIN.prompt]))[0, -1].softmax(-1).numpy() * 4000
    frequent = expected > 20
    distance = ((counts - expected)[frequent] ** 2 / expected[frequent]).sum()
    # Chi-squared: its mean is the number of tokens, and its spread the root of twice that.
    assert distance < frequent.sum() + 5 * np.sqrt(2 * frequent.sum())


def test_the_first_samples_do_not_depend_on_how_many_are_asked_for(engine: SamplingEngine) -> None:
    (few,), (many,) = (engine.sample([dataclasses.replace(PLAIN, n=n)]) for n in (2, 9))
    assert many[:2] == few
    assert len({sample.tokens for sample in many}) > 1


def test_another_seed_gives_other_samples(engine: SamplingEngine) -> None:
    (first,), (other,) = (engine.sample([dataclasses.replace(PLAIN, seed=s)]) for s in (1, 2))
    assert first != other


def test_more_samples_than_rows_are_sampled_in_turn(model: LanguageModel) -> None:
    narrow, wide = (SamplingEngine(model, max_rows=rows) for rows in (16, 64))
    request = dataclasses.replace(PLAIN, n=40)
    assert narrow.sample([request]) == wide.sample([request])


def test_logprobs_are_those_of_the_network(model: LanguageModel, engine: SamplingEngine) -> None:
    request = dataclasses.replace(PLAIN, logprobs=True, top_logprobs=3, temperature=0.5)
    (samples,) = engine.sample([request])
    for sample in samples:
        tokens = torch.tensor([(*request.prompt, *sample.tokens)])
        with torch.no_grad():
            logprobs = model.logits(tokens)[0, len(request.prompt) - 1 : -1].log_softmax(-1)
        own = logprobs.gather(1, torch.tensor(sample.tokens)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(sample.logprobs), own, atol=1e-5, rtol=0)
        best = logprobs.topk(3)
        for found, ids, values in zip(sample.top, best.indices, best.values, strict=True):
            assert [one.token for one in found] == ids.tolist()
            assert [one.logprob for one in found] == pytest.approx(values.tolist(), abs=1e-5)
    pairs = [(request.prompt, sample.tokens) for sample in samples]
    for sample, logprobs_of in zip(samples, engine.logprobs_of(pairs), strict=True):
        assert logprobs_of == pytest.approx(sample.logprobs, abs=1e-5)


def test_logprobs_of_a_continuation_do_not_depend_on_the_others(engine: SamplingEngine) -> None:
    pairs = [((256, *range(length)), (7, 8, length)) for length in range(3, 40)]
    assert engine.logprobs_of(pairs) == [engine.logprobs_of([pair])[0] for pair in pairs]


def test_samples_without_logprobs_have_none(engine: SamplingEngine) -> None:
    ((sample, *_), *_) = engine.sample([PLAIN])
    assert (sample.logprobs, sample.top) == ((), ())


def test_a_sample_ends_with_the_end_of_message_and_its_text_is_without(
    engine: SamplingEngine,
) -> None:
    bias = {260: 100.0}
    ((sample,),) = engine.sample([dataclasses.replace(PLAIN, n=1, logit_bias=bias)])
    assert (sample.tokens, sample.text, sample.finish_reason) == ((260,), "", "stop")


def spelled(text: str) -> dict[int, float]:
    """Return a bias that leaves only the bytes of a text."""
    return dict.fromkeys(text.encode(), 100.0)


@pytest.mark.parametrize(("letters", "stop"), [("abc", ("ab", "bbb", "c")), ("é", ("é",))])
def test_a_stop_text_ends_a_sample_across_tokens(
    letters: str, stop: tuple[str, ...], engine: SamplingEngine
) -> None:
    request = dataclasses.replace(
        PLAIN, n=30, max_tokens=60, logit_bias=spelled(letters), stop=stop
    )
    (samples,) = engine.sample([request])
    for sample in samples:
        data = bytes(sample.tokens)
        places = [place for stop in request.stop if (place := data.find(stop.encode())) >= 0]
        assert sample.finish_reason == ("stop" if places else "length")
        assert sample.text == data[: min(places, default=60)].decode("utf-8", "replace")
        # No stop text is complete before the last token.
        assert all(stop.encode() not in data[:-1] for stop in request.stop)
    assert any(len(sample.tokens) > 2 for sample in samples)
    assert all(sample.finish_reason == "stop" for sample in samples[:5])


def test_a_sample_ends_at_max_tokens_or_at_the_context(engine: SamplingEngine) -> None:
    endless = {260: -100.0}
    request = dataclasses.replace(PLAIN, n=1, max_tokens=7, logit_bias=endless)
    ((sample,),) = engine.sample([request])
    assert (len(sample.tokens), sample.finish_reason) == (7, "length")
    request = dataclasses.replace(request, max_tokens=10_000)
    ((sample,),) = engine.sample([request])
    assert (len(sample.tokens), sample.finish_reason) == (160 - len(PLAIN.prompt), "length")


def test_penalties_and_biases_move_the_logits(engine: SamplingEngine) -> None:
    greedy = dataclasses.replace(PLAIN, n=1, temperature=0.0, max_tokens=30)
    never = {260: -100.0}
    ((plain,),) = engine.sample([dataclasses.replace(greedy, logit_bias=never)])
    request = dataclasses.replace(greedy, logit_bias=never, presence_penalty=100.0)
    ((varied,),) = engine.sample([request])
    assert len(set(varied.tokens)) == 30 > len(set(plain.tokens))
    request = dataclasses.replace(greedy, logit_bias={65: 100.0, 66: 95.0}, frequency_penalty=2.0)
    ((counted,),) = engine.sample([request])
    # B overtakes A once A was taken three times, and from then on they take turns.
    assert bytes(counted.tokens[:3]) == b"AAA"
    assert set(counted.tokens[3:]) == {65, 66}


def test_the_nucleus_is_the_fewest_tokens_that_reach_the_share() -> None:
    probabilities = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.97, 0.01, 0.01, 0.01]])
    kept = nucleus(probabilities, torch.tensor([0.6, 0.5]))
    assert kept.tolist() == [
        [0, pytest.approx(0.4), 0, pytest.approx(0.3)],
        [pytest.approx(0.97), 0, 0, 0],
    ]


def test_top_p_never_takes_an_unlikely_token(model: LanguageModel, engine: SamplingEngine) -> None:
    request = dataclasses.replace(PLAIN, n=300, max_tokens=1, top_p=0.3)
    (samples,) = engine.sample([request])
    with torch.no_grad():
        probabilities = model.logits(torch.tensor([PLAIN.prompt]))[0, -1].softmax(-1)
    best = probabilities.sort(descending=True)
    count = int((best.values.cumsum(-1) < 0.3).sum()) + 1
    assert {sample.tokens[0] for sample in samples} == set(best.indices[:count].tolist())


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_a_token_without_probability_is_never_taken(uniform: float) -> None:
    logits = torch.randn(500, 264, generator=torch.Generator().manual_seed(0))
    logits[:, [0, 100, 262, 263]] = -torch.inf
    ones = np.ones(500, dtype=np.float32)
    tokens = choose(logits, Temper(ones, ones == 0, ones, ones * np.float32(uniform)))
    assert not set(tokens.tolist()) & {0, 100, 262, 263}


def test_logits_that_are_no_numbers_are_reported() -> None:
    broken: Tensor = torch.full((2, 5), torch.nan)
    ones = np.ones(2, dtype=np.float32)
    for greedy in (ones == 0, ones == 1):
        with pytest.raises(LudusError, match="logits are not finite numbers"):
            choose(broken, Temper(ones, greedy, ones, ones * 0))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"prompt": ()}, "the prompt has no token"),
        ({"prompt": (264,)}, "it has those from 0 to 263"),
        ({"prompt": (-1,)}, "it has those from 0 to 263"),
        ({"n": 0}, "n is 0; ask for at least one"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"stop": ("a", "")}, "a stop text is empty"),
        ({"top_logprobs": 21}, "top_logprobs is 21"),
        ({"logit_bias": {300: 1.0}}, "logit_bias names a token"),
        ({"presence_penalty": float("inf")}, "a penalty or a value of logit_bias"),
    ],
)
def test_a_request_that_cannot_be_sampled_is_refused_at_once(
    changes: dict[str, object], sentence: str, engine: SamplingEngine
) -> None:
    with pytest.raises(RequestError, match=sentence):
        engine.sample([PLAIN, dataclasses.replace(PLAIN, **changes)])  # type: ignore[arg-type]


def test_a_prompt_over_the_context_is_refused_with_both_numbers(engine: SamplingEngine) -> None:
    with pytest.raises(PromptTooLong, match="has 160 tokens, and the model's context is 160"):
        engine.sample([dataclasses.replace(PLAIN, prompt=(1,) * 160)])


@pytest.mark.parametrize("context", [12, 37, 100])
def test_a_prompt_fills_a_context_of_any_size(model: LanguageModel, context: int) -> None:
    shape = dataclasses.replace(SHAPE, context=context)
    network = Llama(shape)
    initialise(network, torch.Generator().manual_seed(0), embedding_std=0.3)
    short = LanguageModel("short", Path("nowhere"), network.eval(), model.tokenizer, context)
    engine = SamplingEngine(short, max_rows=64)
    for length in (context - 1, context - 3):
        request = dataclasses.replace(PLAIN, prompt=(97,) * length, max_tokens=1)
        (found,) = engine.sample([request])
        assert [list(one.tokens) for one in found] == slow_samples(short, request)
