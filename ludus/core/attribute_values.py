"""Read the values of an object's attributes without creating its `__dict__`.

Up to CPython 3.12 the attributes of an instance are stored in an array. Reading its `__dict__` moves them
into a dict for good, and each later access is slower: 4 to 6% of an RL run where every part was read once.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any

from ludus.core import kinds

_HAS_COST = sys.version_info < (3, 13)
_PLUMBING = {"__dict__", "__weakref__"}


def attribute_values(thing: object) -> list[Any]:
    """Return the values of an object's attributes; for most classes also those named in `derived`."""
    kind: Any = type(thing)
    if _HAS_COST and not _needs_names(kind):
        found = [one for one in gc.get_referents(thing) if one is not kind]
        # An object with a dict refers to nothing else, and reading that dict moves nothing.
        if len(found) != 1:
            return found
    return [value for _, value in kinds.attributes(thing)]


@functools.lru_cache(maxsize=4096)
def _needs_names(kind: type) -> bool:
    """Return whether some attributes of a class must be distinguished by name."""
    ignored, slots = kinds.layout(kind)
    return bool(slots) or not ignored <= kinds.derived_of(kind) | _PLUMBING
