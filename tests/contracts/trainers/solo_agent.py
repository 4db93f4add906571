"""Agents that learn alone, every update a stage."""

from __future__ import annotations

import ludus
from tests.arena.small_solo import small_solo


def make() -> ludus.Trainer:
    return ludus.build_trainer(small_solo())
