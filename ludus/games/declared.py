"""What the family of device games adds to the words of the library."""

from __future__ import annotations

from ludus.config.rooms import declare

declare(
    "ludus.games",
    categories={"game": "rules", "player": "players"},
    counters=("round", "game_steps"),
    lengths={"max_rounds": "round"},
    directions={"rho": "max", "agent_rho": "min"},
)
