"""Rounds of querying and labelling, each of which fits the model to all that is labelled by then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.data.batches.memory import MemoryBatches
from ludus.data.batches.splits import Examples
from ludus.fit.loop import EPOCH, Fit
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Sgd
from ludus.nn.schedules import Schedule
from ludus.nn.schedules._table import LinearSchedule
from ludus.seeds import derive, forked, generator
from tests.toy import ToyTrainer, toy_config

NUM_EXAMPLES, BATCH, MAX_EPOCHS = 18, 2, 4
# Begun anew without its place, the run looks for the best model of a round that is not there.
REFUSALS = {"run": "models/best-"}
FALLING = LinearSchedule.Config(kind="linear", warmup_steps=0, final=0.0, total_steps=None)


class Labelled:
    """Batches of the examples that are labelled: two more a round."""

    def __init__(self, seed: int) -> None:
        drawn = generator(seed, "pool")
        self.inputs = torch.randn(NUM_EXAMPLES, 2, generator=drawn)
        noise = torch.randn(NUM_EXAMPLES, 1, generator=drawn)
        self.targets = self.inputs @ torch.tensor([[1.0], [-2.0]]) + noise
        self._seed = seed
        self.take([0, 1])

    def take(self, indices: list[int]) -> None:
        self.indices = list(indices)
        examples = Examples(self.inputs[indices], self.targets[indices])
        self._batches = MemoryBatches(
            examples, batch_size=BATCH, shuffle=True, drop_last=False, seed=self._seed,
            device=torch.device("cpu"),
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def state_dict(self) -> dict[str, Any]:
        return {"indices": list(self.indices), **self._batches.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.take(state["indices"])
        self._batches.load_state_dict({name: state[name] for name in ("epoch", "position")})


@register_trainer("toy_active")
class ToyActive(ToyTrainer):
    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        with forked(derive(self.config.seed, "model")):
            network = nn.Linear(2, 1)
        sgd = Sgd(kind="sgd", learning_rate=0.1, momentum=0.5, weight_decay=0.0, nesterov=False)
        self.learner = Learner(network, sgd, max_grad_norm=1.0)
        self.data = Labelled(self.config.seed)
        self.fitting = Fit(
            self.data,
            train_step=self.learn,
            schedule=lambda length: Schedule(
                FALLING, initial=0.3, run_steps=MAX_EPOCHS * (length or 0)
            ),
            max_epochs=MAX_EPOCHS,
            max_steps=None,
            then=(Stage(name="validate", work=self.validate),),
        )
        self.judge = Judge(
            Score("model", "validation/loss", patience=1),
            end=lambda run, reason: run.leave(EPOCH, reason),
        )
        self.fitting.renew(self.judge)

    def plan(self) -> Repeat:
        rounds = Repeat(
            name="round",
            times=self.config.num_rounds,
            counter="iteration",
            body=(
                self.stage("query"),
                Stage(name="label", work=self.label),
                self.fitting.loop(),
                Stage(name="test", work=self.test),
            ),
        )
        return Repeat(name="train", times=1, body=(self.stage("select_model"), rounds))

    def parts(self) -> Mapping[str, Stateful]:
        parts = {"learner": self.learner, "data": self.data, "fitting": self.fitting}
        return {**super().parts(), **parts, "judge": self.judge}

    def best(self) -> Mapping[str, Any] | None:
        return self.judge.best

    def weights(self) -> dict[str, Tensor]:
        """Return a copy: models are written in the background."""
        return {name: tensor.clone() for name, tensor in self.learner.weights().items()}

    def label(self, run: Run) -> dict[str, float]:
        """Label the two examples that the model is furthest from knowing."""
        with torch.no_grad():
            errors = (self.learner(self.data.inputs) - self.data.targets).abs().flatten()
        errors[self.data.indices] = -1.0
        self.data.take([*self.data.indices, *errors.topk(2).indices.tolist()])
        return {"toy/labelled": float(len(self.data.indices))}

    def learn(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Any]:
        rate = self.fitting.learning_rate(self.run)
        inputs, targets = batch

        def loss_fn(network: Any) -> tuple[Tensor, None]:
            return (network(inputs) - targets).square().mean(), None

        loss, _, _ = self.learner.step(loss_fn, torch.tensor(rate))
        self.run.counters["opt_steps"] += 1
        return {"train/loss": loss, "train/rate": rate}

    def validate(self, run: Run) -> dict[str, float]:
        metrics = {"validation/loss": self.loss()}
        self.judge.update(run, metrics, lambda score: self.weights())
        return metrics

    def loss(self) -> float:
        with torch.no_grad():
            return float((self.learner(self.data.inputs) - self.data.targets).square().mean())

    def test(self, run: Run) -> dict[str, float]:
        """Test the best model of this round, which goes on as it is."""
        best = self.judge.best
        assert best is not None
        own = self.weights()
        self.learner.load_weights(run.recall_model(best["model"]))
        loss = self.loss()
        self.learner.load_weights(own)
        assert loss == best["score"], "the best model of a round is of that round"
        return {"test/loss": loss}


def make() -> ToyActive:
    return ToyActive(toy_config("toy_active"))
