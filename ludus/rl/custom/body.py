"""A network body that a script passes to an agent instead of the config's."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np
import torch
from torch import nn

from ludus.core.errors import ConfigError
from ludus.envs.spaces import EnvSpec
from ludus.nn.model import without_model


class CustomBody:
    """Returns the network itself first, so that it is the one trained, and then copies of it."""

    def __init__(self, network: nn.Module, spec: EnvSpec) -> None:
        self.obs_shape = tuple(spec.obs_shape)
        # Registered explicitly: a module may refuse or ignore an attribute set from outside.
        network.__dict__["num_features"] = _num_features(network, spec)
        self._unused: nn.Module | None = network
        self._pristine = copy.deepcopy(network)

    def take(self) -> nn.Module:
        """Return a body with the given weights."""
        body, self._unused = self._unused, None
        return copy.deepcopy(self._pristine) if body is None else body


_GIVEN: ContextVar[CustomBody | None] = ContextVar("custom_body", default=None)


@contextlib.contextmanager
def giving(network: nn.Module | None, spec: EnvSpec) -> Iterator[None]:
    """Use the given network, inside the block, as every body for this env's observations."""
    token = _GIVEN.set(None if network is None else CustomBody(network, spec))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def custom_body(obs_shape: tuple[int, ...]) -> nn.Module | None:
    """Return the script's body for observations of this shape, or None."""
    given = _GIVEN.get()
    return given.take() if given is not None and given.obs_shape == tuple(obs_shape) else None


def as_network(model: object) -> nn.Module:
    """Return the torch network of the argument of `set_model`."""
    network = without_model(model)
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"set_model takes a torch network or a ludus.Model, not a {type(model).__name__}; an agent"
            " uses it as the body of its networks and puts its own outputs on top"
        )
    return network


def _num_features(network: nn.Module, spec: EnvSpec) -> int:
    """Return the number of features of the network, found by a forward pass on two rows of zeros."""
    dtype = torch.uint8 if spec.obs_dtype == np.uint8 else torch.float32
    copied, zeros = (
        copy.deepcopy(network).cpu().eval(),
        torch.zeros(2, *spec.obs_shape, dtype=dtype),
    )
    takes = (
        f"the network must take observations of shape (B, {', '.join(map(str, spec.obs_shape))})"
    )
    try:
        with torch.no_grad():
            features = copied(zeros)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        problem = str(error).partition("\n")[0]
        raise ConfigError(
            f"{takes} of {spec.name} and return one row of features each; it fails: {problem}"
        ) from error
    shape = tuple(getattr(features, "shape", ()))
    if len(shape) != 2 or shape[0] != 2 or not features.is_floating_point():
        found = f"a tensor of shape {shape}" if shape else f"a {type(features).__name__}"
        raise ConfigError(
            f"{takes} of {spec.name} and return one row of features each; for B = 2 it returns {found}"
        )
    return int(shape[1])
