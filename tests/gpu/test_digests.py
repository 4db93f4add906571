"""Digests of weights on a GPU: the same as on the host, and nobody waits for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.core.run import Run
from ludus.session.digests import Digests, WeightCopy
from ludus.store.local import LocalStorage
from tests.gpu.test_device_ring import not_waiting

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]
NO_RECORD: Any = None


class Learns:
    """Holds its weights as the learner of ludus does."""

    def __init__(self) -> None:
        self.flat = type("Flat", (), {"vectors": [torch.randn(100_003, device="cuda")]})()


def test_a_digest_is_the_same_wherever_the_weights_are() -> None:
    vector = torch.randn(10_001)
    assert WeightCopy([vector]).read() == WeightCopy([vector.cuda()]).read()


def test_a_digest_is_taken_and_written_without_a_wait_for_the_gpu(tmp_path: Path) -> None:
    learner = Learns()
    digests = Digests(LocalStorage(tmp_path), {"agent": learner}, lambda name, line: None)
    run = Run()
    for steps in (1, 501, 1001):
        run.counters["opt_steps"], run.boundaries = steps, steps
        if steps == 1:
            digests.take(run)
            continue
        with not_waiting():
            learner.flat.vectors[0].mul_(2)  # type: ignore[attr-defined]
            digests.take(run)
            digests.write(NO_RECORD)
    digests.settle()
    lines = [json.loads(line) for line in (tmp_path / "weights.jsonl").read_text().splitlines()]
    assert [line["opt_steps"] for line in lines] == [1, 501, 1001]
    assert len({line["weights"]["agent"] for line in lines}) == 3
