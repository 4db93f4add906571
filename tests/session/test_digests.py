"""The digest of weights beside the log: any change shows, it is taken seldom, and says whose it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ludus.core.run import Run
from ludus.session.digests import EVERY, EVERY_OF_LARGE, Digests, WeightCopy, weights_in
from ludus.store.local import LocalStorage

NO_RECORD: Any = None


def digest(vector: torch.Tensor) -> str:
    return WeightCopy([vector]).read()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1, 3, 127, 128, 129, 1000, 4099])
def test_the_change_of_any_one_bit_is_noticed(dtype: torch.dtype, size: int) -> None:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
    before = digest(vector)
    assert before == digest(vector.clone())
    bits = vector.view(torch.uint8)
    for index in {0, len(bits) // 2, len(bits) - 1, len(bits) // 3}:
        for bit in (1, 128):
            bits[index] ^= bit
            assert digest(vector) != before
            bits[index] ^= bit
    assert digest(vector) == before


def test_rows_that_change_places_and_signs_of_zero_are_noticed() -> None:
    vector = torch.randn(64 * 32, generator=torch.Generator().manual_seed(0))
    assert digest(vector) != digest(vector.flip(0).contiguous())
    assert digest(torch.zeros(300)) != digest(-torch.zeros(300))
    assert digest(vector[1:]) != digest(vector[:-1]), "one that does not begin on eight bytes"


class Learns:
    """Holds its weights as the learner of ludus does."""

    def __init__(self) -> None:
        self.flat = type("Flat", (), {"vectors": [torch.ones(8), torch.ones(3)]})()
        self.module = nn.Linear(2, 2)


class Other(Learns):
    """Has other weights."""

    def __init__(self) -> None:
        super().__init__()
        self.flat.vectors[0] = torch.full((8,), 2.0)  # type: ignore[attr-defined]


def test_weights_are_those_of_learners_and_else_of_networks_that_learn() -> None:
    class Part:
        def __init__(self, **things: object) -> None:
            vars(self).update(things)

    frozen = nn.Linear(2, 2).requires_grad_(False)
    agent = Part(deep=[Part(learner=Learns())], net=nn.Linear(2, 2))
    assert list(weights_in({"agent": agent, "log": Part()})) == ["agent.deep.0.learner"]
    own = Part(nets={"q": nn.Linear(2, 2)}, teacher=frozen)
    own.me = own  # type: ignore[attr-defined]
    assert list(weights_in({"own": own})) == ["own.nets.q"]
    assert weights_in({"log": Part()}) == {}


def test_a_digest_of_a_network_copies_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    part = type("Part", (), {})()
    part.net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 3))
    (weights,) = weights_in({"part": part}).values()
    monkeypatch.setattr(torch, "cat", None)
    assert weights.size() == 64 * 64 + 64 + 64 * 3 + 3
    inside = {weight.data_ptr() for weight in part.net.parameters()}
    assert {vector.data_ptr() for vector in weights.vectors()} == inside
    monkeypatch.undo()
    before = WeightCopy(weights.vectors()).read()
    with torch.no_grad():
        part.net[1].bias[2] += 1
    assert WeightCopy(weights.vectors()).read() != before


def run_at(steps: int, boundaries: int) -> Run:
    run = Run()
    run.counters["opt_steps"], run.boundaries = steps, boundaries
    return run


def lines(root: Path) -> list[dict[str, Any]]:
    text = (root / "weights.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_digests_lie_so_many_steps_apart_also_across_a_resume(tmp_path: Path) -> None:
    heard: list[str] = []

    def pass_steps(first: int, last: int) -> None:
        storage = LocalStorage(tmp_path)
        digests = Digests(storage, {"agent": Learns()}, lambda name, line: heard.append(name))
        for steps in range(first, last):
            digests.take(run_at(steps, steps))
            digests.write(NO_RECORD)
        digests.settle()
        storage.close()

    pass_steps(3, 40)
    pass_steps(40, 2 * EVERY + 10)
    assert [line["opt_steps"] for line in lines(tmp_path)] == [3, 3 + EVERY, 3 + 2 * EVERY]
    assert heard == ["weights.jsonl"] * 3
    assert list(lines(tmp_path)[0]["weights"]) == ["agent"]
    assert len({line["weights"]["agent"] for line in lines(tmp_path)}) == 1


def test_of_a_large_network_a_digest_is_taken_more_often(tmp_path: Path) -> None:
    learner = Learns()
    learner.flat.vectors[0] = torch.zeros(1 << 20)  # type: ignore[attr-defined]
    digests = Digests(LocalStorage(tmp_path), {"agent": learner}, lambda name, line: None)
    for steps in range(1, 2 * EVERY_OF_LARGE + 2):
        digests.take(run_at(steps, steps))
    digests.settle()
    found = [line["opt_steps"] for line in lines(tmp_path)]
    assert found == [1, 1 + EVERY_OF_LARGE, 1 + 2 * EVERY_OF_LARGE]


def test_a_run_that_counts_no_steps_goes_by_its_boundaries(tmp_path: Path) -> None:
    digests = Digests(LocalStorage(tmp_path), {"agent": Learns()}, lambda name, line: None)
    for boundary in range(1, 2 * EVERY):
        digests.take(run_at(0, boundary))
    digests.settle()
    assert [line["boundary"] for line in lines(tmp_path)] == [1, 1 + EVERY]


def test_a_learner_that_is_replaced_is_looked_at_in_its_place(tmp_path: Path) -> None:
    part = type("Part", (), {})()
    part.learners = [Learns()]
    digests = Digests(LocalStorage(tmp_path), {"agent": part}, lambda name, line: None)
    moved = ((1, part.learners), (501, [Other()]), (1001, (5, Other())), (1501, None))
    for steps, learners in moved:
        part.learners = learners
        digests.take(run_at(steps, steps))
    digests.settle()
    first, second, third = (line["weights"] for line in lines(tmp_path))
    assert list(first) == list(second) == ["agent.learners.0"]
    assert first != second
    assert third == {"agent.learners.1": second["agent.learners.0"]}, "it was looked for again"


def test_weights_that_cannot_be_read_as_bits_end_no_run(tmp_path: Path) -> None:
    learner = Learns()
    learner.flat.vectors[0] = torch.eye(3).to_sparse()  # type: ignore[attr-defined]
    digests = Digests(LocalStorage(tmp_path), {"agent": learner}, lambda name, line: None)
    digests.take(run_at(1, 1))
    digests.settle()
    assert lines(tmp_path) == []


def test_a_run_without_weights_has_no_file_of_them(tmp_path: Path) -> None:
    Digests(LocalStorage(tmp_path), {}, lambda name, line: None).take(run_at(1, 1))
    assert not (tmp_path / "weights.jsonl").exists()
