"""An update captured as a CUDA graph is the eager one within rounding, repeats its bytes, and is quicker."""

from __future__ import annotations

import gc
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import LudusError
from ludus.nn.engines.choice import ENGINES
from ludus.nn.engines.graph import Graphed
from ludus.testing.engines import check_engine
from ludus.testing.trainers import check_kill_anywhere
from tests.contracts.test_engines import SUBJECTS
from tests.gpu.test_supervised import make
from tests.rl.odd_networks import engine_of, odd
from tests.rl.small import small

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32:UserWarning"),
]
RTOL, ATOL = 1e-4, 1e-6
"""How far results and state may be from the eager ones after each of six updates."""
DEVICE = torch.device("cuda")
GRAPH: dict[str, Any] = {"settings.device": "cuda", "engine": "graph"}


def device_seconds(call: Any, inputs: Any, num_calls: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(num_calls):
        call(*inputs)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def told(root: Path, name: str) -> list[str]:
    events = map(json.loads, (root / name / "events.jsonl").read_text().splitlines())
    return [event["reason"] for event in events if event["event"] == "engine"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_graphed_update_is_the_eager_one_within_rounding(name: str) -> None:
    check_engine(ENGINES["graph"], lambda: SUBJECTS[name]("cuda"), rtol=RTOL, atol=ATOL)


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
        assert len(call._graphs) == 1
        ends.append(dict(subject.state()))
    torch.testing.assert_close(*ends, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", ["dqn", "ppo", "sac", "iqn"])
def test_a_run_with_graphs_killed_anywhere_ends_with_the_same_bytes(
    kind: str, tmp_path: Path
) -> None:
    """A resumed one warms up and captures anew, in the middle of the run."""
    config = small(kind, **GRAPH)
    check_kill_anywhere(lambda: ludus.build_trainer(config), tmp_path, max_kills=4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_supervised_run_with_graphs_is_exact_too(precision: str, tmp_path: Path) -> None:
    """With dropout, gathered gradients and mean weights."""
    check_kill_anywhere(lambda: make(engine="graph", precision=precision), tmp_path, max_kills=3)


@pytest.mark.parametrize("kind", ["dqn", "ppo", "sac"])
def test_a_run_with_graphs_learns_as_an_eager_one(kind: str, tmp_path: Path) -> None:
    ends = []
    for engine in ("eager", "graph"):
        trainer: Any = ludus.build_trainer(small(kind, **{**GRAPH, "engine": engine}))
        trainer.fit(root=str(tmp_path), name=engine)
        ends.append(torch.cat([t.flatten() for t in trainer.agent.weights().values()]))
    assert len(engine_of(trainer.agent)._graphs) >= 1
    assert torch.allclose(*ends, atol=1e-3), (ends[0] - ends[1]).abs().max()


def test_auto_is_a_graph_on_cuda_and_a_supervised_run_learns_as_eagerly(tmp_path: Path) -> None:
    losses = {}
    for engine in ("eager", "auto"):
        trainer = make(engine=engine)
        trainer.fit(root=str(tmp_path), name=engine)
        losses[trainer.config.engine] = trainer.logger.written["train/epoch_loss"]
    # Dropout draws the same numbers in a replay as in a call.
    assert losses["graph"] == pytest.approx(losses["eager"], rel=1e-4)


def test_a_network_of_ones_own_is_called_eagerly_and_that_is_told(tmp_path: Path) -> None:
    config = odd("dqn", "counter", **{"settings.device": "cuda", "engine": "auto"})
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(tmp_path), name="run")
    assert trainer.config.engine == "eager"
    assert told(tmp_path, "run")[0].startswith("the update is not captured as a CUDA graph: Odd")


def test_a_tape_asked_for_on_cuda_is_left_out_and_told(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("dqn", **{**GRAPH, "engine": "tape"}))
    trainer.fit(root=str(tmp_path), name="run")
    assert told(tmp_path, "run") == [
        "the update is not taped: the engine 'tape' is for cpu, and the device is cuda"
    ]


def test_a_call_that_waits_for_the_device_is_called_eagerly_from_then_on() -> None:
    total = torch.zeros((), device=DEVICE)

    def update(x: Tensor) -> Tensor:
        total.add_(x.sum())
        return x * 2 if total.item() > 0 else x

    heard: list[str] = []
    call = Graphed(update, DEVICE, tell=heard.append)
    for number in range(1, 9):
        assert call(torch.ones(3, device=DEVICE)).tolist() == [2.0, 2.0, 2.0]
        assert total.item() == 3 * number
    assert len(heard) == 1
    assert heard[0].startswith("the update cannot be captured as a CUDA graph (")
    strict = Graphed(update, DEVICE)
    for _ in range(3):
        strict(torch.ones(3, device=DEVICE))
    with pytest.raises(LudusError, match="set engine to auto or eager"):
        strict(torch.ones(3, device=DEVICE))
    # The device still works, and can capture something else.
    good = Graphed(lambda x: x + 1, DEVICE)
    for _ in range(6):
        assert good(torch.ones(2, device=DEVICE)).tolist() == [2.0, 2.0]


def test_each_replay_draws_new_numbers_and_the_eager_ones() -> None:
    dropout = nn.Dropout(0.5)
    x = torch.ones(64, device=DEVICE)
    torch.manual_seed(0)
    wanted = [dropout(x) for _ in range(8)]
    call = Graphed(dropout, DEVICE)
    torch.manual_seed(0)
    found = [call(x) for _ in range(8)]
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert len({tuple(one.tolist()) for one in found}) == 8


def test_an_input_may_be_missing_and_shapes_are_told_apart() -> None:
    call = Graphed(lambda x, y: x + 1 if y is None else x * y, DEVICE)
    for number in range(6):
        for size in (2, 3):
            x = torch.full((size,), float(number), device=DEVICE)
            assert torch.equal(call(x, None), x + 1)
            assert torch.equal(call(x, x), x * x)


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
    for engine in ("eager", "graph"):
        subject = SUBJECTS[name]("cuda")
        call = ENGINES[engine](subject.method, subject.device)  # type: ignore[index]
        device_seconds(call, subject.inputs, 10)
        found[engine] = min(device_seconds(call, subject.inputs, 50) for _ in range(5)) / 50
    print(name, {engine: f"{1e6 * seconds:.0f} us" for engine, seconds in found.items()})
    assert found["graph"] < found["eager"]


def test_a_graph_draws_on_from_the_generators_that_it_is_given() -> None:
    own, other = (torch.Generator(DEVICE).manual_seed(3) for _ in range(2))
    call = Graphed(
        lambda x: x + torch.rand(4, generator=own, device=DEVICE), DEVICE, generators=[own]
    )
    x = torch.zeros(4, device=DEVICE)
    for _ in range(6):
        assert torch.equal(call(x), torch.rand(4, generator=other, device=DEVICE))
    assert len(call._graphs) == 1


def test_a_graph_that_is_garbage_does_not_spoil_the_capture_of_another() -> None:
    x, thresholds = torch.zeros(4, device=DEVICE), gc.get_threshold()
    old, new = (Graphed(lambda x: x + len([{} for _ in range(5000)]), DEVICE) for _ in range(2))
    gc.disable()
    try:
        for _ in range(4):
            old(x)
        for _ in range(3):
            new(x)
        old.itself = old  # type: ignore[attr-defined]
        gc.collect(0)
        del old
        # Collected next, once 300 more objects are made: by the function, while it is captured.
        gc.set_threshold(300, 0, 1000)
        gc.enable()
        assert float(new(x)[0]) == 5000
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()


def test_a_function_that_draws_from_python_is_called_and_not_captured_at_one_draw() -> None:
    notes: list[str] = []
    graphed = Graphed(lambda x: x + random.random(), DEVICE, tell=notes.append)
    random.seed(3)
    found = [graphed(torch.zeros(1, device=DEVICE)).item() for _ in range(6)]
    random.seed(3)
    assert found == pytest.approx([random.random() for _ in range(6)])
    assert len(notes) == 1
    assert "draws from Python's random" in notes[0]


def test_the_first_replay_waits_for_what_its_capture_left_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a device that other processes use too, the stream of a capture may be late."""
    begin = torch.cuda.CUDAGraph.capture_begin

    def begin_late(graph: Any, *options: Any, **more: Any) -> None:
        torch.cuda._sleep(500_000_000)
        begin(graph, *options, **more)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", begin_late)

    def draws(is_graphed: bool) -> list[Tensor]:
        generator = torch.Generator(DEVICE).manual_seed(1)

        def draw() -> Tensor:
            return torch.rand(4, generator=generator, device=DEVICE)

        call = Graphed(draw, DEVICE, generators=[generator]) if is_graphed else draw
        return [call() for _ in range(6)]

    for found, expected in zip(draws(True), draws(False), strict=True):
        assert torch.equal(found, expected)
