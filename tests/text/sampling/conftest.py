"""A model whose samples vary, and a mixed lot of requests for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ludus.text.models.byte_tokenizer import ByteTokenizer
from ludus.text.models.language_model import LanguageModel
from ludus.text.models.llama import Llama, LlamaShape, initialise
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.request import SampleRequest

SHAPE = LlamaShape(264, 64, 2, 4, 2, 16, 128, 160, is_tied=False)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model() -> LanguageModel:
    network = Llama(SHAPE)
    initialise(network, torch.Generator().manual_seed(0), embedding_std=0.3)
    with torch.no_grad():
        network.lm_head.weight *= 4
    return LanguageModel("small", Path("nowhere"), network.eval(), ByteTokenizer(), SHAPE.context)


@pytest.fixture(scope="session")
def engine(model: LanguageModel) -> SamplingEngine:
    """An engine without a thread."""
    return SamplingEngine(model, max_rows=64)


@pytest.fixture(scope="session")
def mixed() -> list[SampleRequest]:
    """Requests of every kind, short and long."""
    draw = random.Random(1)
    return [
        SampleRequest(
            prompt=tuple(
                draw.choices(range(256), k=draw.choice([1, 2, 7, 8, 9, 16, 17, 31, 40, 100]))
            ),
            n=draw.choice([1, 1, 2, 5]),
            seed=number % 20,
            max_tokens=draw.choice([1, 5, 17, 33, 70]),
            temperature=draw.choice([0.0, 0.7, 1.0, 1.0]),
            top_p=draw.choice([1.0, 1.0, 0.9, 0.5]),
            stop=draw.choice([(), (), ("a",), ("ab", "€")]),
            logprobs=draw.random() < 0.5,
            top_logprobs=draw.choice([0, 0, 3]),
            presence_penalty=draw.choice([0.0, 0.0, 0.5]),
            frequency_penalty=draw.choice([0.0, 0.0, 0.2]),
            logit_bias=draw.choice([{}, {}, {5: 3.0}]),
        )
        for number in range(40)
    ]
