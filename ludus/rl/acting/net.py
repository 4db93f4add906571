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
