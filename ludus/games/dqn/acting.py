"""Inference of a learner's action values.

Shapes: B games, O features of an observation, A moves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from ludus.games.dqn.inference import Inference, Precision, matmuls_in
from ludus.nn.learner import Learner


class Acting:
    """A learner's current network: on CUDA by fused layers where it is a chain of linear layers, else
    called."""

    def __init__(self, learner: Learner, *, inputs: int, precision: Precision) -> None:
        """`inputs` is the number of input features."""
        self._learner, self._precision = learner, precision
        self._fused: Inference | None = None
        if learner.flat.device.type == "cuda":
            self._fused = Inference(learner.module, inputs=inputs, precision=precision)
        self._is_steady = False

    def values(self, obs_BO: Tensor) -> Tensor:
        """Return (B, A) the value of each move."""
        if self._fused is not None and self._fused.is_current:
            if not self._is_steady:
                self._fused.refresh()
            return self._fused.values(obs_BO)
        with torch.no_grad(), matmuls_in(self._precision):
            values_BA: Tensor = self._learner(obs_BO)
            return values_BA

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """Read the weights once for many calls of `values` inside the block, in which the network must not
        change."""
        if self._fused is not None and self._fused.is_current:
            self._fused.refresh()
        self._is_steady = True
        try:
            yield
        finally:
            self._is_steady = False
