"""What a round begins from, what it looks at the pool with, and what it tells of the classes it asked for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import ludus
from ludus.active.examples import PoolExamples
from ludus.core.runtime import InMemoryRuntime
from tests.active.strategies.small import scorer_of
from tests.keys.runs import SGD, Outcome, tiny

ROUNDS = {"max_rounds": 3, "initial_labels": 20, "queries": 10}
FAST = {**SGD, "learning_rate": 0.5, "momentum": 0.9}


def with_mean(**changed: Any) -> Any:
    """Return a run whose running mean lies far from its weights."""
    config = tiny("active", **ROUNDS, optimizer=FAST, **{"ema_decay": 0.9, **changed})
    return Outcome(config)


def test_the_pool_is_scored_with_the_weights_that_are_evaluated() -> None:
    trainer = with_mean().trainer
    rows = torch.arange(10)
    inputs = trainer.examples.inputs(rows)
    plain = trainer.model(inputs).log_softmax(1).detach()
    with trainer.averaged():
        averaged = trainer.model(inputs).log_softmax(1).detach()
    found = torch.cat(
        [one.log_probs for one in trainer._scorer(trainer.model).stream(rows, {"probabilities"})]
    )
    torch.testing.assert_close(found, averaged)
    assert not torch.allclose(found, plain)
    torch.testing.assert_close(trainer.model(inputs).log_softmax(1).detach(), plain)


@pytest.mark.parametrize(("start", "is_renewed"), [("cold", True), ("warm", False)])
def test_a_cold_start_forgets_the_moments_too(start: str, is_renewed: bool) -> None:
    config = tiny("active", **ROUNDS, max_epochs=2, batch_size=64, round_start=start, ema_decay=0.9)
    trainer: Any = ludus.build_trainer(config)
    found: list[tuple[bool, bool]] = []
    step = trainer.train_step

    def watched(batch: object, batch_idx: int) -> Any:
        moments = [
            moment
            for moment in _tensors(trainer.optimizer.state_dict())
            if moment.is_floating_point()
        ]
        assert moments
        means = zip(trainer.update.ema, trainer.flat.vectors, strict=True)
        begun = (
            all(not moment.any() for moment in moments),
            all(torch.equal(mean, vector) for mean, vector in means),
        )
        if trainer.run.round("epoch") == 0:
            found.append(begun)
        return step(batch, batch_idx)

    trainer.train_step = watched
    trainer.fit(runtime=InMemoryRuntime)
    assert found == [(True, True), *[(is_renewed, is_renewed)] * 2]


def _tensors(state: Any) -> list[Tensor]:
    """Return the tensors that a state holds, at any depth."""
    if isinstance(state, Tensor):
        return [state]
    if not isinstance(state, dict | list):
        return []
    inner = state.values() if isinstance(state, dict) else state
    return [tensor for one in inner for tensor in _tensors(one)]


class Drawn(Dataset[Any]):
    """Examples with noise from the generators that everybody shares."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        drawn = [float(torch.rand(())), random.random(), float(np.random.random())]
        return torch.tensor([row, *drawn]), row % 2


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_random_in_an_example_is_drawn_by_its_row_alone(workers: int) -> None:
    examples = PoolExamples(Drawn(), device=torch.device("cpu"), workers=workers, seed=3)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = examples.inputs(torch.arange(8))
    torch.manual_seed(2)
    order = torch.tensor([5, 2, 7, 0])
    again = torch.cat([batch for _, batch in examples.stream(order, batch_size=3)])
    assert torch.equal(again, first[order])
    assert len(first[:, 1:].unique()) == 24, "two examples drew the same"
    torch.manual_seed(1)
    examples.inputs(torch.arange(8))
    assert torch.equal(torch.get_rng_state(), before), "an example drew from the run's generators"
    other = PoolExamples(Drawn(), device=torch.device("cpu"), workers=0, seed=4)
    assert not torch.equal(other.inputs(torch.arange(8)), first)


class Twice(nn.Module):
    """Calls one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.body(self.body(x)))
        return out


def test_features_of_a_layer_that_is_called_twice_are_those_of_its_last_call() -> None:
    module, inputs = Twice(), torch.randn(4, 3)
    seen = next(
        scorer_of(inputs, module, layer="body", batch_size=4).stream(torch.arange(4), {"features"})
    )
    torch.testing.assert_close(seen.features, module.body(module.body(inputs)).detach())


@pytest.mark.parametrize("outputs", [3, 21])
def test_the_balance_of_many_classes_is_told_in_two_numbers(outputs: int) -> None:
    small = {"initial_labels": 10, "queries": 1, "max_rounds": 1, "model.outputs": outputs}
    outcome = Outcome(tiny("active", **small))
    shares = (outcome.trainer.pool.labels.bincount(minlength=3) / 10).tolist()
    expected = {f"pool/class_share/{at}": share for at, share in enumerate(shares)}
    if outputs > 20:
        expected = {"pool/classes_asked": 2.0, "pool/class_share/largest": max(shares)}
    names = {name for one in outcome.records for name in one.scalars if "class" in name}
    assert {name: outcome.curve(name)[0] for name in names} == pytest.approx(expected)
