"""The base class of PettingZoo's parallel environments, or a clear error where PettingZoo is not
installed."""

from __future__ import annotations

from ludus.arena.libraries import missing

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError as error:
    raise missing(error) from error

__all__ = ["ParallelEnv"]
