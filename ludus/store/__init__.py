"""Files of a run: storage, checkpoints, segments, models, logs, the lock.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.store.directory import found_run
    from ludus.store.journal import Journal
    from ludus.store.places import open_storage
    from ludus.store.storage import Storage

_WHERE = {
    "Journal": "ludus.store.journal",
    "Storage": "ludus.store.storage",
    "found_run": "ludus.store.directory",
    "open_storage": "ludus.store.places",
}

__all__ = [
    "Journal",
    "Storage",
    "found_run",
    "open_storage",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
