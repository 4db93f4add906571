"""Batches in an order that can be resumed anywhere, and the data sets a config can name.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.data.batches.splits import Splits
    from ludus.data.replay.ring import Batch, ReplayBuffer
    from ludus.data.replay.row_layout import RowLayout

_WHERE = {
    "Batch": "ludus.data.replay.ring",
    "ReplayBuffer": "ludus.data.replay.ring",
    "RowLayout": "ludus.data.replay.row_layout",
    "Splits": "ludus.data.batches.splits",
}

__all__ = [
    "Batch",
    "ReplayBuffer",
    "RowLayout",
    "Splits",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
