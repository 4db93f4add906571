"""A family of one's own, outside ludus: games that are played in bouts, with a command and settings."""

import ludus

ludus.declare(
    __name__,
    categories={"game": "games"},
    counters=["bout"],
    lengths={"max_bouts": "bout"},
    other_names={"num_games": ("max_bouts",)},
)
