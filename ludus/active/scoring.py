"""What a model says of the examples of a pool, batch by batch, as a strategy needs it.

Shapes: B examples of a batch, C classes, D features, T draws or members of a committee.
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
from ludus.active.features import Features
from ludus.core.errors import LudusError
from ludus.nn.learner import Precision
from ludus.nn.model import Inputs, Model
from ludus.seeds import derive, forked

Need = Literal["probabilities", "features", "draws", "members"]


@dataclass(frozen=True)
class Seen:
    """What is known of some examples; what a strategy does not need is None."""

    rows: Tensor
    """(B,) their rows in the pool."""
    log_probs: Tensor | None
    """(B, C) logarithms of the probabilities of classes."""
    features: Tensor | None
    """(B, D) what the network makes of them before its last layer."""
    draws: Tensor | None
    """(T, B, C) log probabilities, each with other units dropped, or by another member."""


class Scorer:
    """Calls a model on examples of the pool; it draws nothing from the run's generators."""

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
    ) -> None:
        """`swapped` is the context in which the weights are those that are evaluated."""
        self._examples, self._model, self._features = examples, model, features
        self._batch_size, self._precision, self._seed = batch_size, precision, seed
        self._swapped = swapped

    def stream(
        self, rows: Tensor, needs: set[Need] | frozenset[Need], *, draws: int = 0
    ) -> Iterator[Seen]:
        """Yield what these needs are for all rows, in their order, without keeping any of it."""
        device = self._examples.device
        autocast = torch.autocast(
            device.type,
            dtype=getattr(torch, self._precision),
            enabled=self._precision != "float32",
        )
        inputs = self._examples.stream(rows, batch_size=self._batch_size)
        with forked(derive(self._seed, "scoring")), self._swapped(), self._model.evaluating():
            for rows_B, inputs_B in inputs:
                with torch.no_grad(), autocast:
                    yield self._seen(rows_B, inputs_B, needs, draws)

    def _seen(
        self, rows_B: Tensor, inputs: Inputs, needs: frozenset[Need] | set[Need], draws: int
    ) -> Seen:
        log_probs_BC = features_BD = draws_TBC = None
        module = self._model.module
        if "features" in needs:
            outputs, features_BD = self._features(self._model, inputs)
            features_BD = features_BD.flatten(1).float()
        elif needs & {"probabilities", "members"}:
            outputs = self._model(inputs)
        if "probabilities" in needs:
            log_probs_BC = self._checked(log_probabilities(outputs, self._model.loss), rows_B)
        if "members" in needs:
            members = self._model.members(inputs)  # type: ignore[attr-defined]
            draws_TBC = torch.stack([log_probabilities(one, self._model.loss) for one in members])
        elif "draws" in needs:
            with dropping(module):
                found = [self._model(inputs) for _ in range(draws)]
            draws_TBC = torch.stack([log_probabilities(one, self._model.loss) for one in found])
        return Seen(rows_B, log_probs_BC, features_BD, draws_TBC)

    def _checked(self, log_probs_BC: Tensor, rows_B: Tensor) -> Tensor:
        is_bad_B = log_probs_BC.isnan().any(1).cpu()
        if bool(is_bad_B.any()):
            raise LudusError(
                f"the model gives NaN for row {int(rows_B[is_bad_B][0])} of the pool; look at the example,"
                " or lower optimizer.learning_rate"
            )
        return log_probs_BC


def log_probabilities(outputs: Tensor, loss: str | None) -> Tensor:
    """Return (B, C) log probabilities of classes; one output of a binary model gives two."""
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
    return outputs.log_softmax(1)


@contextlib.contextmanager
def dropping(module: nn.Module) -> Iterator[None]:
    """Let the dropout layers drop units, everything else being in eval mode."""
    layers = [one for one in module.modules() if isinstance(one, nn.modules.dropout._DropoutNd)]
    modes = [layer.training for layer in layers]
    if not layers:
        raise LudusError(
            "the network has no dropout layer, so all draws would be the same; give it model.dropout, or"
            " use another strategy"
        )
    for layer in layers:
        layer.train()
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
