"""Evaluate a model on held-out examples: mean loss and accuracy over all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

import torch

from ludus.core.errors import LudusError
from ludus.data.batches.loader import LoaderBatches
from ludus.data.batches.memory import MemoryBatches
from ludus.fit.more_metrics import numbers_in
from ludus.fit.update import count_examples
from ludus.nn.calling import split_batch
from ludus.nn.model import Model
from ludus.nn.precision import Precision, autocast_in
from ludus.nn.update import exact_type
from ludus.seeds import derive, forked


class SupervisedEvaluator:
    """Makes one pass over the data in eval mode, without using the run's random generators."""

    def __init__(
        self,
        data: MemoryBatches | LoaderBatches,
        *,
        prefix: str,
        precision: Precision,
        device: torch.device,
        seed: int,
    ) -> None:
        self.data = data
        self._prefix = prefix
        self._precision = precision
        self._device = device
        self._seed = seed

    def evaluate(self, agent: Model) -> tuple[float, dict[str, float]]:
        """Return the mean loss as the score, and the metrics."""
        totals: dict[str, list[torch.Tensor]] = {}
        num_examples = 0
        exact = exact_type(self._device)
        with contextlib.closing(self._batches(agent)) as batches:
            for batch in batches:
                count = count_examples(batch)
                result = agent.evaluation_step(batch, self.data.position - 1)
                for name, value in numbers_in(result).items():
                    weight = 1 if name == "correct" else count
                    totals.setdefault(name, []).append(value.to(exact) * weight)
                num_examples += count
        if "loss" not in totals:
            raise LudusError(
                "evaluation_step returned no 'loss'; return one, as training_step does"
            )
        means = {k: torch.stack(v).sum().item() / num_examples for k, v in totals.items()}
        metrics = {self._name(name): value for name, value in means.items()}
        return means["loss"], metrics

    def measure(self, model: Model, weights: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics of these weights; the model has its own again afterwards."""
        own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        try:
            model.load_state_dict(weights)
            return self.evaluate(model)[1]
        finally:
            model.load_state_dict(own)

    def predict(self, agent: Model) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs for all examples, as float32, and their targets, both on the CPU."""
        outputs, targets = [], []
        with contextlib.closing(self._batches(agent)) as batches:
            for batch in batches:
                inputs, target = split_batch(batch)
                outputs.append(agent(inputs).float().cpu())
                targets.append(target.cpu())
        return torch.cat(outputs), torch.cat(targets)

    def _batches(self, agent: Model) -> Generator[Any, None, None]:
        """Yield all batches, with the model in eval mode and gradients disabled."""
        autocast = autocast_in(self._precision, self._device)
        fork = forked(derive(self._seed, self._prefix))
        with fork, agent.evaluating(), torch.no_grad(), autocast:
            self.data.start(0)
            while not self.data.has_ended():
                yield self.data.next()
        self.data.close()

    def _name(self, name: str) -> str:
        name = "accuracy" if name == "correct" else name
        return (
            f"{self._prefix}/{name}" if self._prefix == "test" else f"{self._prefix}/epoch_{name}"
        )
