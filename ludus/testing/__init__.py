"""Contract suites: the checks that any trainer, part, logger back end or storage must pass.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.testing.episodes import check_episodes as check_episodes
    from ludus.testing.games import check_game as check_game
    from ludus.testing.protocols import check_protocol as check_protocol
    from ludus.testing.trainers import (
        check_effects_once as check_effects_once,
        check_trainer as check_trainer,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
