"""Files of a run: storage, checkpoints, segments, models, logs, the lock.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.store.directory import found_run as found_run
    from ludus.store.journal import Journal as Journal
    from ludus.store.places import open_storage as open_storage
    from ludus.store.storage import Storage as Storage
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
