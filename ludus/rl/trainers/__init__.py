"""The trainer kinds of this family, one file each."""

from ludus.core.errors import LudusError

try:
    import gymnasium  # noqa: F401
except ImportError:
    raise LudusError(
        "reinforcement learning needs gymnasium; install it with: pip install 'ludus[rl]'"
    ) from None
