"""The agents that a config can name, one file each: config, network, agent, registered trainer."""

from __future__ import annotations

from ludus.core.errors import LudusError

try:
    import gymnasium  # noqa: F401
except ImportError:
    raise LudusError(
        "reinforcement learning needs gymnasium; install it with: pip install 'ludus[rl]'"
    ) from None
