"""The cost of the server: its process spends little more than the model in process, in one batch."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from ludus.text.chat import ChatMessage
from ludus.text.models.language_model import load_model
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.request import SampleRequest
from ludus.text.server.start import ServerHandle
from tests.text.server.test_same_text import NUM_CLIENTS, answers

NUM_SAMPLES = 8


def question(number: int) -> str:
    return f"question {number:04d} of many"[:20]


@pytest.mark.slow
@pytest.mark.parametrize(("num_tokens", "least", "num_rounds"), [(32, 0.8, 5), (7, 0.65, 20)])
def test_64_clients_cost_little_more_than_one_batch_in_process(
    num_tokens: int, least: float, num_rounds: int, server: ServerHandle, tiny: Path
) -> None:
    torch.set_num_threads(1)
    model = load_model(tiny, name="tiny")
    process = psutil.Process(server.pid)
    total = NUM_CLIENTS * num_rounds

    def in_process() -> float:
        """Return the tokens a CPU-second."""
        begun, count = time.process_time(), 0
        with SamplingEngine(model, max_rows=NUM_CLIENTS * NUM_SAMPLES) as engine:
            for start in range(0, total, NUM_CLIENTS):
                requests = []
                for number in range(start, start + NUM_CLIENTS):
                    said = [ChatMessage("user", question(number))]
                    prompt = model.tokenizer.encode_chat(said, add_generation_prompt=True)
                    requests.append(SampleRequest(tuple(prompt), NUM_SAMPLES, number, num_tokens))
                found = engine.sample(requests)
                count += sum(len(sample.tokens) for samples in found for sample in samples)
        return count / (time.process_time() - begun)

    def served() -> float:
        bodies: list[dict[str, Any]] = [
            {
                "model": "tiny", "messages": [{"role": "user", "content": question(number)}],
                "n": NUM_SAMPLES, "seed": number, "max_tokens": num_tokens, "return_token_ids": True,
            }
            for number in range(total)
        ]  # fmt: skip
        before = process.cpu_times()
        found = asyncio.run(answers(server, bodies, num_at_once=NUM_CLIENTS))
        after = process.cpu_times()
        count = sum(len(choice["token_ids"]) for choices in found for choice in choices)
        return count / (after.user + after.system - before.user - before.system)

    served()
    ratios = [served() / in_process() for _ in range(5)]
    assert statistics.median(ratios) >= least, ratios
