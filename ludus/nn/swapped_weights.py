"""Swap other weights into a network for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from torch import Tensor

from ludus.nn.learner import Learner


@contextlib.contextmanager
def swapped_weights(learner: Learner, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Swap these weights in for the block; after it, the network has its own again.

    Raise StateError, with nothing changed, unless they are weights of such a network.
    """
    learner.check_weights(weights)
    own = {name: tensor.clone() for name, tensor in learner.weights().items()}
    try:
        learner.load_weights(weights)
        yield
    finally:
        learner.load_weights(own)
