"""Batches in an order that can be resumed anywhere, and the data sets a config can name.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.data.batches.splits import Splits as Splits
    from ludus.data.replay.ring import Batch as Batch, ReplayBuffer as ReplayBuffer
    from ludus.data.replay.row_layout import RowLayout as RowLayout
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
