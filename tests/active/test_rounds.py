"""What a round is measured on and with: its best weights, their running mean, and never the test data."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import ludus
from ludus.active.config import StoppingConfig
from ludus.active.drift.calibration import ece
from ludus.active.examples import PoolExamples
from ludus.active.rounds import Progress
from ludus.core.surroundings import Bare
from tests.active.strategies.small import Straight, scorer_of
from tests.keys.runs import SGD, Outcome, tiny

ROUNDS = {"max_rounds": 3, "initial_labels": 20, "queries": 10}
FAST = {**SGD, "learning_rate": 0.5, "momentum": 0.9}
BEST = {"metric": "validation/epoch_loss", "mode": "min"}


def by_class(*, is_right: bool) -> TensorDataset:
    """Return examples whose largest input is their class, or never is."""
    inputs_N3 = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs_N3, (inputs_N3.argmax(1) + (not is_right)) % 3)


@pytest.mark.parametrize(("is_right", "rounds"), [(True, 1), (False, 3)])
def test_the_accuracy_that_ends_a_run_is_never_that_of_test_data(
    is_right: bool, rounds: int
) -> None:
    # Test data is the other way round: who looks at it stops where others go on.
    config = tiny(
        "active", data=None, model=None, **{**ROUNDS, "initial_labels": 5, "queries": 5},
        optimizer={**SGD, "learning_rate": 1e-9},
        stopping={
            "max_labels": None, "target_accuracy": 0.9, "stable_share": None, "stable_rounds": 1
        },
    )  # fmt: skip
    trainer: Any = ludus.ActiveTrainer(
        config, model=Straight(3), train_loader=by_class(is_right=True),
        val_loader=by_class(is_right=is_right), test_loader=by_class(is_right=not is_right),
    )  # fmt: skip
    assert trainer.fit(around=Bare).counters["round"] == rounds


def test_stable_rounds_are_counted_in_a_row() -> None:
    stopping = StoppingConfig(
        max_labels=None, target_accuracy=None, stable_share=1.0, stable_rounds=2
    )
    progress = Progress(stopping, 3)
    zeros, ones = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64)
    assert [progress.hear(None, said) for said in (zeros, zeros, ones, ones)] == [0, 1, 0, 1]
    assert (progress.num_stable, progress.reason) == (1, "")
    progress.hear(None, ones)
    assert progress.reason == "100.0% of the pool is predicted as before, 2 times in a row"


def with_mean(**changed: Any) -> Any:
    """Return the trainer of a run whose running mean lies far from its weights."""
    config = tiny("active", **ROUNDS, optimizer=FAST, **{"ema_decay": 0.9, **changed})
    return Outcome(config)


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_a_round_ends_with_its_best_weights_and_their_mean(ema_decay: float | None) -> None:
    outcome = with_mean(ema_decay=ema_decay, best_model=BEST, max_epochs=6)
    trainer = outcome.trainer
    last = outcome.curve("validation/epoch_loss")[-1]
    best = trainer.best()["score"]
    assert best < last, "the last epoch was the best one, and shows nothing"
    assert trainer.evaluate(trainer.eval_data)["validation/epoch_loss"] == pytest.approx(best)
    # The next step moves both: a mean that stayed elsewhere would pull the weights' mean there.
    for mean, vector in zip(trainer.update.ema or (), trainer.flat.vectors, strict=False):
        assert torch.equal(mean, vector)


def test_calibration_is_that_of_the_weights_that_are_evaluated() -> None:
    outcome = with_mean(calibration={"bins": 10, "temperature": False})
    trainer = outcome.trainer
    data, ema = trainer.evaluators["test"], trainer.update.ema
    plain = ece(*data.predict(trainer.model), bins=10)
    with trainer.flat.swapped(ema):
        averaged = ece(*data.predict(trainer.model), bins=10)
    assert outcome.curve("test/ece")[-1] == pytest.approx(averaged, abs=1e-9)
    assert averaged != pytest.approx(plain, abs=1e-6)


def test_the_pool_is_scored_with_the_weights_that_are_evaluated() -> None:
    trainer = with_mean().trainer
    rows = torch.arange(10)
    inputs = trainer.examples.inputs(rows)
    plain = trainer.model(inputs).log_softmax(1).detach()
    with trainer.flat.swapped(trainer.update.ema):
        averaged = trainer.model(inputs).log_softmax(1).detach()
    found = torch.cat(
        [one.log_probs for one in trainer._scorer(trainer.model).stream(rows, {"probabilities"})]
    )
    torch.testing.assert_close(found, averaged)
    assert not torch.allclose(found, plain)
    torch.testing.assert_close(trainer.model(inputs).log_softmax(1).detach(), plain)


@pytest.mark.parametrize(("start", "is_renewed"), [("cold", True), ("warm", False)])
def test_a_cold_start_forgets_the_moments_too(start: str, is_renewed: bool) -> None:
    config = tiny("active", **ROUNDS, max_epochs=1, batch_size=64, start=start, ema_decay=0.9)
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
        found.append(
            (
                all(not moment.any() for moment in moments),
                all(torch.equal(mean, vector) for mean, vector in means),
            )
        )
        return step(batch, batch_idx)

    trainer.train_step = watched
    trainer.fit(around=Bare)
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
