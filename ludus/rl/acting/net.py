"""Forward passes for acting: in NumPy on the memory of the weights where possible, else in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.nn.export.numpy_net import NumpyMlp, numpy_steps
from ludus.rl.networks.mlp import MlpBody
from ludus.rl.sampling.normalise import Normaliser

Net = Callable[[NDArray[Any]], NDArray[Any]]
"""A function from observations to outputs, one row each."""
Masks = NDArray[np.bool_] | None
"""Action masks (N, A): which actions are allowed; None where the env has no masks."""

_LEAST_DRAW = np.float32(1e-30)


def acting_net(
    modules: Sequence[nn.Module],
    normaliser: Normaliser | None,
    device: torch.device,
    obs_shape: tuple[int, ...],
) -> Net:
    """Return a function from observations to outputs, one row each: no gradient, eval mode.

    A small network costs less in NumPy than the framework's own overhead; it reads the weights where
    the learner changes them, so it is never out of date. The returned array may be overwritten by
    the next call.
    """
    # The layers themselves, where a body only chains layers: each intermediate call costs time.
    module = nn.Sequential(*[m.layers if isinstance(m, MlpBody) else m for m in modules])
    steps = numpy_steps(module) if device.type == "cpu" else None

    def by_torch(obs_ND: NDArray[Any]) -> NDArray[Any]:
        with torch.inference_mode():
            found = module(torch.from_numpy(obs_ND).to(device))
        out: NDArray[Any] = found.float().cpu().numpy()
        return out

    compute: Net = by_torch
    if steps is not None and _agree(NumpyMlp(steps), by_torch, obs_shape):
        compute = NumpyMlp(steps)
    if normaliser is None:
        return compute
    return lambda obs_ND: compute(normaliser.numpy_obs(obs_ND))


def _agree(by_numpy: Net, by_torch: Net, obs_shape: tuple[int, ...]) -> bool:
    """Return whether NumPy, which flattens observations first, gives the same result as torch."""
    if len(obs_shape) == 1:
        return True
    obs_ND = np.linspace(-1, 1, 2 * math.prod(obs_shape), dtype=np.float32).reshape(2, *obs_shape)
    try:
        found, wanted = by_numpy(obs_ND), by_torch(obs_ND)
    except (ValueError, RuntimeError):
        return False
    return found.shape == wanted.shape and bool(np.allclose(found, wanted, 1e-3, 1e-4))


def draw_categorical(logits_NA: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
    """Sample one action per row with probability proportional to exp(logit)."""
    # The argmin of exponential draws divided by their weights is distributed by those weights.
    draws_NA = generator.standard_exponential(logits_NA.shape, dtype=np.float32)
    # One draw in millions is 0, whose logarithm would win against any mask.
    np.maximum(draws_NA, _LEAST_DRAW, out=draws_NA)
    np.log(draws_NA, out=draws_NA)
    drawn: NDArray[np.int64] = (logits_NA - draws_NA).argmax(1)
    return drawn


def best_of(values_NA: NDArray[Any], masks_NA: Masks) -> NDArray[np.int64]:
    """Return the argmax of each row among the allowed actions."""
    best: NDArray[np.int64]
    best = (values_NA if masks_NA is None else masked(values_NA, masks_NA)).argmax(1)
    return best


def masked(values_NA: NDArray[Any], masks_NA: Masks) -> NDArray[Any]:
    """Return the values with those of masked actions set to the lowest number."""
    if masks_NA is None:
        return values_NA
    return np.where(masks_NA, values_NA, np.float32(-3.0e38))
