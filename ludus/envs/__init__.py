"""Envs: their kinds and wrappers, stepped together here or in workers, and restored exactly.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.envs.config import EnvSection as EnvSection, WrapperSection as WrapperSection
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
