"""The agents that a config can name, one file each: config, network, agent, registered trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ludus.core.errors import LudusError

try:
    import gymnasium  # noqa: F401
except ImportError:
    raise LudusError(
        "reinforcement learning needs gymnasium; install it with: pip install 'ludus[rl]'"
    ) from None


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
