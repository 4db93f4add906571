"""A family of one's own, outside ludus: games of two players that learn, with a command and settings."""

import ludus

ludus.declare(
    __name__,
    categories={"contest": "games"},
    counters=["bout"],
    lengths={"max_bouts": "bout"},
    other_names={"num_games": ("max_bouts",)},
    directions={"margin": "max"},
)
