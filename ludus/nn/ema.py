"""The exponential moving average of weights (EMA): smoother than the weights, and often better."""

from __future__ import annotations

from torch import Tensor

from ludus.nn.flat import Vectors


class Ema:
    """Vectors that follow others: they keep `decay` of themselves at every step that is taken."""

    def __init__(self, vectors: Vectors, decay: float) -> None:
        self.vectors = [vector.clone() for vector in vectors]
        self._share = 1 - decay

    def follow(self, vectors: Vectors, stays: Vectors) -> None:
        """Move each towards its weights, unless its `stays` holds 1: then it took no step."""
        for own, vector, stay in zip(self.vectors, vectors, stays, strict=True):
            share: Tensor = self._share * (1 - stay)
            own.lerp_(vector, share if own.dtype == share.dtype else share.to(own.dtype))
