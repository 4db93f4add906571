"""Env sections and specs as JSON, for worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, validate
from ludus.envs.spaces import BoxActions, DiscreteActions, EnvSpec, MultiDiscreteActions

_ACTIONS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "discrete": (DiscreteActions, int),
    "multi": (MultiDiscreteActions, tuple),
    "box": (BoxActions, lambda bound: np.array(bound, np.float32)),
}
"""The class of each kind of actions, and how its fields are read from JSON."""


def read_env_section(section: Mapping[str, Any]) -> StrictConfig:
    """Return the typed config of an env from parsed JSON."""
    config: type[StrictConfig] = find("env", section["kind"]).Config
    return validate(config, section, source="env")


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """Return a spec as JSON data."""
    kind = next(kind for kind, (cls, _) in _ACTIONS.items() if isinstance(spec.action, cls))
    values = {name: np.asarray(value).tolist() for name, value in vars(spec.action).items()}
    action = {"kind": kind, "values": values}
    return {**vars(spec), "obs_dtype": spec.obs_dtype.name, "action": action}


def spec_from_json(plain: Mapping[str, Any]) -> EnvSpec:
    """Return the spec from the result of `spec_to_json`."""
    cls, read = _ACTIONS[plain["action"]["kind"]]
    values = {name: read(value) for name, value in plain["action"]["values"].items()}
    shape, dtype = tuple(plain["obs_shape"]), np.dtype(plain["obs_dtype"])
    return EnvSpec(**{**plain, "obs_shape": shape, "obs_dtype": dtype, "action": cls(**values)})
