"""Runtime of a run: the session, checkpointing, resuming, the fingerprint, the logger.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.session.build import build_trainer
    from ludus.session.logger import Logger, WriteLog
    from ludus.session.record import Record
    from ludus.session.trainer import Trainer

_WHERE = {
    "Logger": "ludus.session.logger",
    "Record": "ludus.session.record",
    "Trainer": "ludus.session.trainer",
    "WriteLog": "ludus.session.logger",
    "build_trainer": "ludus.session.build",
}

__all__ = [
    "Logger",
    "Record",
    "Trainer",
    "WriteLog",
    "build_trainer",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
