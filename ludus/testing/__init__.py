"""Contract suites: the checks that any trainer, part, logger back end or storage must pass.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.testing.episodes import check_episodes
    from ludus.testing.games import check_game
    from ludus.testing.protocols import check_protocol
    from ludus.testing.trainers import check_effects_once, check_trainer

_WHERE = {
    "check_effects_once": "ludus.testing.trainers",
    "check_episodes": "ludus.testing.episodes",
    "check_game": "ludus.testing.games",
    "check_protocol": "ludus.testing.protocols",
    "check_trainer": "ludus.testing.trainers",
}

__all__ = [
    "check_effects_once",
    "check_episodes",
    "check_game",
    "check_protocol",
    "check_trainer",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _WHERE)
