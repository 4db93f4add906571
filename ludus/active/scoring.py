"""Predictions of a model on the pool, batch by batch, as a strategy needs them.

Shapes: B examples of a batch, C classes, D features, T MC dropout samples or committee members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ludus.active.examples import PoolExamples
from ludus.active.models.features import Features
from ludus.core.errors import Interrupted, LudusError
from ludus.nn.model import Inputs, Model
from ludus.nn.precision import Precision, autocast_in
from ludus.seeds import derive, forked

Need = Literal["probabilities", "features", "draws", "members"]


@dataclass(frozen=True)
class PoolBatch:
    """Predictions for some examples; those that a strategy does not need are None."""

    rows: Tensor
    """(B,) their rows in the pool."""
    log_probs: Tensor | None
    """(B, C) log probabilities of classes."""
    features: Tensor | None
    """(B, D) features before the last layer."""
    draws: Tensor | None
    """(T, B, C) log probabilities of each Monte Carlo dropout sample or committee member."""


class Scorer:
    """Calls a model on examples of the pool, without using the run's random generators."""

    def __init__(
        self,
        examples: PoolExamples,
        model: Model,
        *,
        features: Features,
        batch_size: int,
        precision: Precision,
        seed: int,
        swapped: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`swapped` is the context in which the model has the weights to evaluate.

        `is_interrupted` is called before each batch; if true, Interrupted is raised.
        """
        self._is_interrupted = is_interrupted
        self._examples, self._model, self._features = examples, model, features
        self._batch_size, self._precision, self._seed = batch_size, precision, seed
        self._swapped = swapped
        self._is_open = False

    @property
    def pool_size(self) -> int:
        """Number of examples in the pool."""
        return self._examples.size

    def predicted(self, rows: Tensor) -> Tensor:
        """Return the predicted class of each row, on the CPU."""
        seen = self.stream(rows, {"probabilities"})
        return torch.cat(
            [one.log_probs.argmax(1).cpu() for one in seen if one.log_probs is not None]
        )

    def stream(
        self, rows: Tensor, needs: set[Need] | frozenset[Need], *, draws: int = 0
    ) -> Iterator[PoolBatch]:
        """Yield the needed predictions for all rows, in order, without storing them."""
        if self._is_open:
            raise LudusError(
                "the pool is read a second time while it is still being read, and the network can be in one"
                " mode only; read the first stream to its end, or close() it"
            )
        needs = frozenset(needs)
        device = self._examples.device
        autocast = autocast_in(self._precision, device)
        batches = self._examples.stream(rows, batch_size=self._batch_size)
        self._is_open = True
        try:
            with (
                forked(derive(self._seed, "scoring")),
                self._swapped(),
                self._model.evaluating(),
            ):
                for rows_B, inputs_B in batches:
                    # Scoring a pool may take hours; a pause must not wait for it.
                    if self._is_interrupted():
                        raise Interrupted
                    with torch.no_grad(), autocast:
                        seen = self._seen(rows_B, inputs_B, needs, draws)
                    # Outside the context: the caller computes in its own mode and precision.
                    yield seen
                    # Frees the memory of this batch for the next.
                    del seen, rows_B, inputs_B
        finally:
            self._is_open = False

    def _seen(
        self, rows_B: Tensor, inputs: Inputs, needs: frozenset[Need] | set[Need], draws: int
    ) -> PoolBatch:
        log_probs_BC = features_BD = draws_TBC = None
        if needs >= {"probabilities", "features"}:
            outputs, found = self._features(self._model, inputs)
        elif "features" in needs:
            found = self._features.alone(self._model, inputs, count=len(rows_B))
        elif "probabilities" in needs:
            outputs = self._model(inputs)
        if "features" in needs:
            features_BD = found.flatten(1).float()
            _refuse_nan(features_BD, rows_B, what="features")
        if "probabilities" in needs:
            log_probs_BC = self._log_probs(outputs, rows_B)
        if "members" in needs:
            members: list[Tensor] = self._model.members(inputs)  # type: ignore[attr-defined]
            draws_TBC = torch.stack([self._log_probs(one, rows_B) for one in members])
        elif "draws" in needs:
            with dropping(self._model.module):
                drawn = [self._log_probs(self._model(inputs), rows_B) for _ in range(draws)]
            draws_TBC = torch.stack(drawn)
        return PoolBatch(rows_B, log_probs_BC, features_BD, draws_TBC)

    def _log_probs(self, outputs: Tensor, rows_B: Tensor) -> Tensor:
        log_probs_BC = log_probabilities(outputs, self._model.loss)
        _refuse_nan(log_probs_BC, rows_B, what="outputs")
        return log_probs_BC


def _refuse_nan(found_BX: Tensor, rows_B: Tensor, *, what: str) -> None:
    """Raise LudusError if a number is NaN, or infinite where that would become NaN."""
    # A sum is one cheap pass; the offending row is searched for only if it is not finite.
    total = found_BX.sum()
    is_good = total.isfinite() if what == "features" else ~total.isnan()
    if bool(is_good):
        return
    is_bad_BX = ~found_BX.isfinite() if what == "features" else found_BX.isnan()
    is_bad_B = is_bad_BX.any(1).cpu()
    if bool(is_bad_B.any()):
        raise LudusError(
            f"the model gives {what} that are not finite for row {int(rows_B[is_bad_B][0])} of the pool;"
            " look at the example, or lower optimizer.learning_rate"
        )


def log_probabilities(outputs: Tensor, loss: str | None) -> Tensor:
    """Return (B, C) log probabilities of classes; one output of a binary model gives two."""
    if not isinstance(outputs, Tensor):
        raise LudusError(
            f"the network returns a {type(outputs).__name__}; strategies look at one tensor of (examples,"
            " classes): let its forward return that"
        )
    outputs = outputs.float()
    if loss == "binary_cross_entropy":
        logits_B = outputs.reshape(len(outputs), -1)
        if logits_B.shape[1] != 1:
            raise LudusError(
                f"the model answers {logits_B.shape[1]} yes-or-no questions of an example, and strategies"
                " look at one; use strategy.kind uniform or core_set"
            )
        return torch.cat([functional.logsigmoid(-logits_B), functional.logsigmoid(logits_B)], dim=1)
    if outputs.ndim != 2:
        raise LudusError(
            f"the model gives outputs of {tuple(outputs.shape)}; strategies look at (examples, classes)"
        )
    if outputs.shape[1] < 2:
        raise LudusError(
            "the model knows one class only, of which it is always sure; give it two outputs or more"
        )
    return outputs.log_softmax(1)


@contextlib.contextmanager
def dropping(module: nn.Module) -> Iterator[None]:
    """Enable dropout layers, with everything else in eval mode."""
    dropout = nn.modules.dropout._DropoutNd
    layers = [one for one in module.modules() if isinstance(one, dropout) and one.p > 0]
    modes = [layer.training for layer in layers]
    if not layers:
        raise LudusError(
            "the network has no dropout layer with a probability above 0, so all draws would be the same;"
            " set model.dropout, give the network an nn.Dropout, or use another strategy"
        )
    for layer in layers:
        layer.training = True
    # In eval mode torch's transformer layers take a fused path that skips their dropout.
    is_fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fused)
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
