"""The config section of a network body, and the construction of bodies and heads."""

from __future__ import annotations

import copy
import math
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from pydantic import SerializeAsAny
from torch import nn

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, registered
from ludus.core.errors import ConfigError
from ludus.nn.actor_critic import make_orthogonal
from ludus.rl.custom.body import custom_body
from ludus.seeds import forked

NetworkSection = Annotated[SerializeAsAny[StrictConfig], registered("network")]

Activation = Literal["relu", "tanh", "gelu", "silu"]
Init = Literal["torch", "orthogonal"]


def make_body(
    section: StrictConfig, obs_shape: tuple[int, ...], obs_dtype: DTypeLike = np.float32
) -> nn.Module:
    """Return this section's network body for observations of this shape.

    It takes (B, *obs_shape) and returns (B, F), where F is its `num_features`; raise ConfigError if it
    does not.
    """
    if (given := custom_body(obs_shape)) is not None:
        return given
    kind: str = section.kind  # type: ignore[attr-defined]
    body: nn.Module = find("network", kind)(section, tuple(obs_shape))
    if not type(body).__module__.startswith("ludus."):
        _check_body(kind, body, np.zeros((1, *obs_shape), obs_dtype))
    return body


def features_of(body: nn.Module) -> int:
    """Return the number of features of a body."""
    return int(body.num_features)  # type: ignore[arg-type]


def _check_body(kind: str, body: object, obs: NDArray[Any]) -> None:
    """Raise ConfigError unless a third-party body declares its `num_features`, correctly."""
    name = f"the network '{kind}' ({type(body).__qualname__})"
    if not isinstance(body, nn.Module):
        raise ConfigError(f"{name} is no torch.nn.Module; derive it from that")
    width = getattr(body, "num_features", None)
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise ConfigError(
            f"{name} has num_features {width!r}; set self.num_features, in its __init__, to how many"
            " numbers it returns for an observation"
        )
    try:
        copied = copy.deepcopy(body).eval()
        with forked(0), torch.no_grad():
            out = copied(torch.from_numpy(obs))
    except Exception as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"{name} cannot take a batch of one observation of shape {obs.shape[1:]} in eval mode,"
            f" as acting does: {type(error).__name__}: {text[0]}"
        ) from error
    if not isinstance(out, torch.Tensor) or tuple(out.shape) != (1, width):
        shape = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise ConfigError(
            f"{name} returns {shape} for one observation of shape {obs.shape[1:]}, not (1, {width});"
            " num_features must be how many numbers it returns for each"
        )


def initialise(layers: nn.Sequential, init: Init) -> None:
    """Initialise linear layers and convolutions, unless torch's default is configured."""
    if init == "orthogonal":
        for layer in layers:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                make_orthogonal(layer, gain=math.sqrt(2))
