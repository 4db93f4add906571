"""Env sections and specs as JSON, for worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, validate
from ludus.envs.spaces import BoxActions, DiscreteActions, EnvSpec, MultiDiscreteActions


def read_env_section(section: Mapping[str, Any]) -> StrictConfig:
    """Return the typed config of an env from parsed JSON."""
    config: type[StrictConfig] = find("env", section["kind"]).Config
    return validate(config, section, source="env")


def spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    """Return a spec as JSON data."""
    action: dict[str, Any]
    if isinstance(spec.action, DiscreteActions):
        action = {"kind": "discrete", "n": spec.action.n, "start": spec.action.start}
    elif isinstance(spec.action, MultiDiscreteActions):
        action = {"kind": "multi", "nvec": spec.action.nvec, "starts": spec.action.starts}
    else:
        low, high = spec.action.low.tolist(), spec.action.high.tolist()
        action = {"kind": "box", "low": low, "high": high}
    return {
        "obs_shape": spec.obs_shape,
        "obs_dtype": spec.obs_dtype.name,
        "action": action,
        "has_masks": spec.has_masks,
        "name": spec.name,
    }


def spec_from_json(plain: Mapping[str, Any]) -> EnvSpec:
    """Return the spec from the result of `spec_to_json`."""
    said = plain["action"]
    action: DiscreteActions | MultiDiscreteActions | BoxActions
    if said["kind"] == "discrete":
        action = DiscreteActions(said["n"], said["start"])
    elif said["kind"] == "multi":
        action = MultiDiscreteActions(tuple(said["nvec"]), tuple(said["starts"]))
    else:
        action = BoxActions(*(np.array(said[name], np.float32) for name in ("low", "high")))
    return EnvSpec(
        obs_shape=tuple(plain["obs_shape"]),
        obs_dtype=np.dtype(plain["obs_dtype"]),
        action=action,
        has_masks=plain["has_masks"],
        name=plain["name"],
    )
