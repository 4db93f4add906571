"""An update captured as a CUDA graph is the eager one, repeats its bytes, and is quicker."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from ludus.nn.engines.choice import ENGINES
from ludus.testing.engines import check_engine
from tests.contracts.test_engines import SUBJECTS

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32:UserWarning"),
]


def device_seconds(call: Any, inputs: Any, num_calls: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(num_calls):
        call(*inputs)
    torch.cuda.synchronize()
    return time.perf_counter() - start


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_graphed_update_is_the_eager_one_within_rounding(name: str) -> None:
    check_engine(ENGINES["graph"], lambda: SUBJECTS[name]("cuda"), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_graphed_update_repeats_its_bytes(name: str) -> None:
    ends = []
    for _ in range(2):
        subject = SUBJECTS[name]("cuda")
        call = ENGINES["graph"](subject.method, subject.device)
        inputs = [None if x is None else x + 0.01 if x.is_floating_point() else x
                  for x in subject.inputs]  # fmt: skip
        for _ in range(8):
            call(*inputs)
        torch.cuda.synchronize()
        ends.append(dict(subject.state()))
    torch.testing.assert_close(*ends, rtol=0, atol=0, equal_nan=True)


def test_what_a_replay_returns_is_not_overwritten_by_the_next() -> None:
    subject = SUBJECTS["supervised"]("cuda")
    call = ENGINES["graph"](subject.method, subject.device)
    inputs = [*subject.inputs[:2], torch.full((), 0.01, device="cuda")]
    losses = [call(*inputs)[0] for _ in range(8)]
    assert len({loss.item() for loss in losses}) == 8


@pytest.mark.parametrize("name", ["dqn", "sac", "ppo"])
def test_a_graphed_update_is_quicker_than_an_eager_one(name: str) -> None:
    """Small networks: nearly all of an eager update is the host's time."""
    found = {}
    for engine in ("eager", "compiled", "graph"):
        subject = SUBJECTS[name]("cuda")
        call = ENGINES[engine](subject.method, subject.device)  # type: ignore[index]
        device_seconds(call, subject.inputs, 10)
        found[engine] = min(device_seconds(call, subject.inputs, 50) for _ in range(5)) / 50
    print(name, {engine: f"{1e6 * seconds:.0f} us" for engine, seconds in found.items()})
    assert found["graph"] < found["eager"]
