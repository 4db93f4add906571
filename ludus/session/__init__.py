"""Runtime of a run: the session, checkpointing, resuming, the fingerprint, the logger.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.session.begun import begin as begin, in_whole as in_whole
    from ludus.session.build import build_trainer as build_trainer
    from ludus.session.logger import Logger as Logger, WriteLog as WriteLog
    from ludus.session.record import Record as Record
    from ludus.session.reports import Reports as Reports
    from ludus.session.trainer import Trainer as Trainer
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
