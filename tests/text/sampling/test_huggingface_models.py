"""Models of transformers are sampled too, by ludus's own decoder where they are Llamas."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from ludus.text.models.byte_tokenizer import ByteTokenizer
from ludus.text.models.huggingface import HuggingFaceNetwork
from ludus.text.models.language_model import LanguageModel
from ludus.text.models.llama import Llama
from ludus.text.sampling.choose_decoder import decoder_of
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.grouped_decoder import GroupedDecoder
from ludus.text.sampling.llama_decoder import LlamaDecoder
from ludus.text.sampling.request import SampleRequest

transformers = pytest.importorskip("transformers")


def wrapped(network: torch.nn.Module) -> LanguageModel:
    module = HuggingFaceNetwork(network.eval())
    return LanguageModel("other", Path("nowhere"), module, ByteTokenizer(), 160)


@pytest.fixture(scope="module")
def gpt() -> LanguageModel:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=264, n_positions=160, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    return wrapped(transformers.GPT2LMHeadModel(config))


def test_another_architecture_gives_the_same_samples_alone_and_together(
    gpt: LanguageModel, mixed: list[SampleRequest]
) -> None:
    requests = mixed[:12]
    engine = SamplingEngine(gpt, max_rows=16)
    together = engine.sample(requests)
    assert together == [engine.sample([request])[0] for request in requests]
    engine.check_batch_invariance()


def test_another_architecture_is_sampled_from_its_own_distribution(gpt: LanguageModel) -> None:
    request = SampleRequest((256, 104, 105), 3, 1, 20, temperature=0.0, logprobs=True)
    engine = SamplingEngine(gpt)
    (samples,) = engine.sample([request])
    for sample in samples:
        tokens = torch.tensor([(*request.prompt, *sample.tokens)])
        with torch.no_grad():
            logprobs = gpt.logits(tokens)[0, 2:-1].log_softmax(-1)
        assert logprobs.argmax(-1).tolist() == list(sample.tokens)
        assert sample.logprobs == pytest.approx(logprobs.amax(-1).tolist(), abs=1e-5)
        (found,) = engine.logprobs_of([(request.prompt, sample.tokens)])
        assert found == pytest.approx(sample.logprobs, abs=1e-5)


def test_a_llama_of_transformers_is_decoded_as_one_of_ludus(
    model: LanguageModel, mixed: list[SampleRequest]
) -> None:
    assert isinstance(model.module, Llama)
    values = model.module.shape.to_json()
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values))
    network.load_state_dict(model.module.state_dict())
    other = wrapped(network)
    assert isinstance(decoder_of(other, batching="shared", cache_bytes=1), LlamaDecoder)
    assert isinstance(decoder_of(other, batching="alone", cache_bytes=1), GroupedDecoder)
    assert SamplingEngine(other).sample(mixed[:5]) == SamplingEngine(model).sample(mixed[:5])


def test_a_vocabulary_wider_than_the_tokenizers_is_no_mistake(gpt: LanguageModel) -> None:
    config = transformers.GPT2Config(vocab_size=270, n_positions=64, n_embd=8, n_layer=1, n_head=1)
    wide = dataclasses.replace(wrapped(transformers.GPT2LMHeadModel(config)), context=64)
    request = SampleRequest((1, 2), 1, 0, 5, logit_bias={269: 100.0}, temperature=0.0)
    (((sample),),) = SamplingEngine(wide).sample([request])
    assert (sample.tokens, sample.text) == ((269,) * 5, "")
