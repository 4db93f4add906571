"""Envs: their kinds and wrappers, stepped together here or in workers, and restored exactly.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.envs.config import EnvSection, WrapperSection

_WHERE = {
    "EnvSection": "ludus.envs.config",
    "WrapperSection": "ludus.envs.config",
}

__all__ = [
    "EnvSection",
    "WrapperSection",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
