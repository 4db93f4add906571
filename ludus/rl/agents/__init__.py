"""Agents: what acts and learns, one file each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def rebuild(config: Mapping[str, Any]) -> Any:
    """Return an agent that can act, on the CPU, from its trainer's config as plain data."""
    from ludus.config.base import from_data
    from ludus.config.registry import find
    from ludus.envs.vector import make_vector_env

    typed: Any = from_data(config, source="the agent's config")
    env = make_vector_env(typed.env, 1, typed.seed)
    try:
        return find("trainer", typed.kind).Agent(typed, env.spec, torch.device("cpu"))
    finally:
        env.close()
