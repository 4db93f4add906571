"""Evaluate a language model on a table of tokens: loss and accuracy over all of its examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ludus.core.errors import Interrupted
from ludus.nn.precision import Precision, autocast_in
from ludus.text.tuning.methods import SupervisedMethod
from ludus.text.tuning.tokens import TokenBatch, TokenTable, make_batch
from ludus.text.tuning.tuned_model import TunedModel


class TuningEvaluator:
    """Makes one pass over a table in eval mode."""

    def __init__(
        self,
        table: TokenTable,
        *,
        batch_size: int,
        precision: Precision,
        device: torch.device,
        is_interrupted: Callable[[], bool],
    ) -> None:
        self.table, self._size, self._precision = table, batch_size, precision
        self._device, self._is_interrupted = device, is_interrupted

    def evaluate(self, model: TunedModel, reference_B2: Tensor | None) -> dict[str, float]:
        """Return the mean loss and the other metrics.

        Supervised metrics are means over all learned tokens; those of preferences, means over batches.
        """
        is_by_token = isinstance(model.method, SupervisedMethod)
        totals: dict[str, float] = {}
        weight = 0
        before, model.reference_B2 = model.reference_B2, reference_B2
        try:
            for batch in self._batches(model):
                count = len(batch.targets) if is_by_token else len(batch.rows)
                for name, value in model.evaluation_step(batch, 0).items():
                    totals[name] = totals.get(name, 0.0) + float(value) * count
                weight += count
        finally:
            model.reference_B2 = before
        return {name: total / weight for name, total in totals.items()}

    def reference(self, model: TunedModel) -> Tensor:
        """Return the log-probabilities of the answers of all examples under the current weights, float32."""
        return torch.cat([model.answer_log_probs(batch) for batch in self._batches(model)])

    def _batches(self, model: TunedModel) -> Iterator[TokenBatch]:
        """Yield all batches in order, with the model in eval mode and gradients disabled."""
        autocast = autocast_in(self._precision, self._device)
        with model.evaluating(), torch.no_grad(), autocast:
            for rows_B in torch.arange(len(self.table)).split(self._size):
                if self._is_interrupted():
                    raise Interrupted
                yield make_batch(self.table, rows_B, device=self._device)
