"""What a run measures: every epoch anew, over all examples, without leaving a trace."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ludus import Model, Trainer
from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.memory import make_batches
from ludus.store.checkpoint import digest_of
from ludus.supervised.evaluator import SupervisedEvaluator
from tests.supervised.conftest import MLP, Tiny, history, lines, wines


def evaluator(source: Any, prefix: str = "validation", precision: Any = "float32") -> Any:
    cpu = torch.device("cpu")
    data = make_batches(
        source, batch_size=7, shuffle=False, drop_last=False, workers=0, seed=0, device=cpu
    )
    return SupervisedEvaluator(data, prefix=prefix, precision=precision, device=cpu, seed=0)


class Slow(Trainer):
    """Computes the loss and the answer of every training example once more, the obvious way."""

    def before_epoch(self) -> None:
        self.losses: list[float] = []
        self.answers: list[bool] = []

    def train_step(self, batch: Any, batch_idx: int) -> Mapping[str, Any] | None:
        inputs, targets = batch
        with torch.no_grad():
            outputs = self.model(inputs)
        self.losses += nn.functional.cross_entropy(outputs, targets, reduction="none").tolist()
        self.answers += (outputs.argmax(1) == targets).tolist()
        return super().train_step(batch, batch_idx)

    def after_epoch(self) -> None:
        self.logger.log("slow/loss", sum(self.losses) / len(self.losses))
        self.logger.log("slow/accuracy", sum(self.answers) / len(self.answers))


@pytest.mark.covers("003-M6", "003-D4")
def test_epoch_metrics_are_of_that_epoch_alone(tiny: Tiny, tmp_path: Path) -> None:
    """Not running values, not means of batch means; the last batch has ten."""
    result = Slow(tiny(max_epochs=3)).fit(root=str(tmp_path))
    for name in ("loss", "accuracy"):
        written = history(result.run_dir, f"train/epoch_{name}")
        assert written == pytest.approx(history(result.run_dir, f"slow/{name}"), rel=1e-6)
        assert len(set(written)) == 3


def test_an_evaluation_is_the_mean_over_all_examples() -> None:
    inputs, targets = wines()
    model = Model(MLP, loss="cross_entropy").eval()
    outputs = model(inputs)
    score, record = evaluator(TensorDataset(inputs, targets)).evaluate(model)
    slow = nn.functional.cross_entropy(outputs, targets).item()
    accuracy = (outputs.argmax(1) == targets).float().mean().item()
    assert score == pytest.approx(slow, rel=1e-6)
    assert record == {
        "validation/epoch_loss": score,
        "validation/epoch_accuracy": pytest.approx(accuracy, rel=1e-6),
    }


def test_the_final_test_has_names_of_its_own() -> None:
    model = Model(MLP, loss="cross_entropy")
    _, record = evaluator(TensorDataset(*wines()), "test").evaluate(model)
    assert list(record) == ["test/loss", "test/accuracy"]


@pytest.mark.covers("003-M6")
def test_epoch_metrics_are_named_after_their_data(tiny: Tiny, tmp_path: Path) -> None:
    result = Trainer(tiny()).fit(root=str(tmp_path))
    for role in ("train", "validation"):
        for name in ("epoch_loss", "epoch_accuracy"):
            assert len(history(result.run_dir, f"{role}/{name}")) == 2


class Restless(Model):
    """Draws from every generator when it is evaluated."""

    def evaluation_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        torch.rand(3)
        np.random.random()
        random.random()
        return super().evaluation_step(batch, batch_idx)


def test_an_evaluation_leaves_generators_modes_and_weights_as_they_were() -> None:
    layers = nn.Sequential(nn.Linear(13, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model = Restless(layers, loss="cross_entropy")
    model.train()
    layers[1].eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    measure = evaluator(TensorDataset(*wines()))
    scores = {measure.evaluate(model)[0] for _ in range(3)}
    assert len(scores) == 1
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]
    assert [layer.training for layer in layers] == [True, False, True, True]
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in state.items())


def test_the_mode_comes_back_even_if_the_evaluation_fails() -> None:
    model = Model(nn.Linear(5, 3), loss="cross_entropy").train()
    with pytest.raises(RuntimeError):
        evaluator(TensorDataset(*wines())).evaluate(model)
    assert model.module.training


def test_validation_changes_nothing_that_training_computes(tiny: Tiny, tmp_path: Path) -> None:
    dropout = {**MLP, "dropout": 0.5}
    digests = set()
    for interval in (1, 0):
        config = tiny(evaluate_every_epochs=interval, model=dropout, ema_decay=0.9)
        trainer = Trainer(config)
        trainer.fit(root=str(tmp_path), name=f"run{interval}")
        parts = {name: trainer.all_parts()[name].state_dict() for name in ("model", "update")}
        digests.add(digest_of(parts))
    assert len(digests) == 1


def test_what_is_evaluated_is_the_running_mean_if_there_is_one(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Trainer(tiny(ema_decay=0.9))
    result = trainer.fit(root=str(tmp_path))
    written = history(result.run_dir, "validation/epoch_loss")[-1]
    own = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    mean = Model(MLP, loss="cross_entropy")
    mean.load_state_dict(trainer.weights())
    assert trainer.eval_data.evaluate(mean)[0] == pytest.approx(written, rel=1e-6)
    assert trainer.eval_data.evaluate(trainer.model)[0] != pytest.approx(written, rel=1e-3)
    trainer.evaluate(trainer.eval_data)
    assert all(tensor.equal(own[name]) for name, tensor in trainer.model.state_dict().items())


def test_the_random_weights_of_the_beginning_are_no_part_of_what_is_judged(
    tiny: Tiny, tmp_path: Path
) -> None:
    accuracies = {}
    for decay in (None, 0.99):
        config = tiny(ema_decay=decay, max_epochs=4, **{"optimizer.learning_rate": 0.01})
        result = Trainer(config).fit(root=str(tmp_path), name=f"decay-{decay}")
        accuracies[decay] = history(result.run_dir, "validation/epoch_accuracy")
    told = [row["event"] for row in lines(tmp_path / "decay-0.99", "events.jsonl")]
    assert "evaluated_weights" in told
    assert accuracies[0.99][-1] >= accuracies[None][-1] - 0.05 > 0.8


@pytest.mark.covers("002-M5")
def test_the_final_test_is_of_the_best_model(tiny: Tiny, tmp_path: Path) -> None:
    class Ruined(Trainer):
        def before_epoch(self) -> None:
            if self.epoch == 3:
                self.flat.vectors[0].zero_()

    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    config = tiny(max_epochs=4, **best, **{"optimizer.learning_rate": 0.01})
    trainer = Ruined(config)
    result = trainer.fit(root=str(tmp_path))
    assert result.best is not None
    assert result.best["counters"]["epoch"] == 3
    tested = history(result.run_dir, "test/loss")[-1]
    assert tested < trainer.evaluate(trainer.evaluators["test"])["test/loss"]
    weights = trainer.run.recall_model(result.best["model"])
    own = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    assert trainer.evaluate_weights(weights)["test/loss"] == tested
    assert all(tensor.equal(own[name]) for name, tensor in trainer.model.state_dict().items())


def test_a_model_that_does_not_fit_the_data_is_told_before_training(
    tiny: Tiny, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"cannot learn from this data: .*float32 \(16, 13\)"):
        Trainer(tiny(model={**MLP, "inputs": 12})).fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_trying_the_model_takes_no_batch_from_the_run(tiny: Tiny, tmp_path: Path) -> None:
    class Counting:
        """A loader whose state moves as it is drawn from."""

        def __init__(self) -> None:
            self.at = 0
            self.drawn: list[int] = []

        def __len__(self) -> int:
            return 5

        def __iter__(self) -> Any:
            while self.at < 5:
                self.at += 1
                self.drawn.append(self.at)
                yield wines(4)
            self.at = 0

        def state_dict(self) -> dict[str, int]:
            return {"at": self.at}

        def load_state_dict(self, state: Mapping[str, int]) -> None:
            self.at = state["at"]

    loader = Counting()
    trainer = Trainer(tiny(data=None), train_loader=loader, val_loader=TensorDataset(*wines()))
    result = trainer.fit(root=str(tmp_path))
    assert loader.drawn == [1, 2, 3, 4, 5] * 2
    assert result.counters["examples"] == 40
    assert result.exact


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Any:
        yield from zip(*wines(), strict=True)


def test_a_stream_trains_without_a_length_and_says_it_may_not_be_exact(
    tiny: Tiny, tmp_path: Path
) -> None:
    config = tiny(data=None, accumulate=2)
    trainer = Trainer(config, train_loader=Stream(), val_loader=TensorDataset(*wines()))
    result = trainer.fit(root=str(tmp_path))
    assert result.counters["examples"] == 60
    assert result.counters["opt_steps"] == 2
    assert not result.exact


def test_a_schedule_over_the_whole_run_needs_to_know_its_length(tiny: Tiny, tmp_path: Path) -> None:
    """Else its first step would be its last, and the run would learn nothing at a rate of 0."""
    schedule = {"kind": "cosine", "warmup_steps": 0, "final": 0.0, "total_steps": None}
    config = tiny(data=None, learning_rate_schedule=schedule, evaluate_every_epochs=0)
    with pytest.raises(
        ConfigError, match=r"set 'learning_rate_schedule.total_steps' or 'max_opt_steps'"
    ):
        Trainer(config, train_loader=Stream()).fit(root=str(tmp_path))
    trainer = Trainer(config, train_loader=Stream())
    assert trainer.fit(max_steps=2, root=str(tmp_path)).counters["opt_steps"] == 2
    assert trainer.schedule(1) == pytest.approx(0.5 * config.optimizer.learning_rate)


def test_validation_without_validation_data_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Trainer(tiny(data=None), train_loader=TensorDataset(*wines()))
    with pytest.raises(
        ConfigError, match="'evaluate_every_epochs' is 1, but there is no validation"
    ):
        trainer.fit(root=str(tmp_path))


def test_an_evaluation_step_without_a_loss_is_told() -> None:
    class Silent(Model):
        def evaluation_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
            return {}

    with pytest.raises(LudusError, match="returned no 'loss'"):
        evaluator(TensorDataset(*wines())).evaluate(Silent(MLP, loss="cross_entropy"))


def test_a_loader_with_workers_trains_the_same_and_leaves_none_behind(
    tiny: Tiny, tmp_path: Path
) -> None:
    class Rows(TensorDataset):
        """Not a plain TensorDataset, so that it is loaded row by row."""

    before = {child.pid for child in psutil.Process().children()}
    weights = []
    for workers in (0, 2):
        loader = DataLoader(Rows(*wines()), batch_size=8, shuffle=True, num_workers=workers)
        config = tiny(data=None, evaluate_every_epochs=0, max_epochs=1)
        trainer = Trainer(config, train_loader=loader)
        trainer.fit(max_steps=3, root=str(tmp_path), name=f"workers{workers}")
        weights.append(trainer.weights())
    assert all(tensor.equal(weights[1][name]) for name, tensor in weights[0].items())
    assert {child.pid for child in psutil.Process().children()} <= before


class Shaky(TensorDataset):
    """Augments from a generator of its own, which no checkpoint knows of."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__(*tensors)
        self.generator = torch.Generator().manual_seed(0)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        inputs, targets = super().__getitem__(index)
        return inputs + torch.randn(inputs.shape, generator=self.generator), targets


@pytest.mark.parametrize("role", ["train", "validation"])
def test_data_that_augments_from_a_generator_of_its_own_makes_the_run_not_exact(
    role: str, tiny: Tiny, tmp_path: Path
) -> None:
    loaders = {name: TensorDataset(*wines()) for name in ("train", "validation")}
    loaders[role] = Shaky(*wines())
    trainer = Trainer(
        tiny(data=None), train_loader=loaders["train"], val_loader=loaders["validation"]
    )
    result = trainer.fit(max_steps=2, root=str(tmp_path))
    assert not result.exact
    (reason,) = result.inexact_because
    assert "the loader over Shaky, asked twice for the same examples, gave different" in reason
