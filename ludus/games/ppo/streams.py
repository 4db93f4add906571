"""Random streams of a PPO run, all of them functions of the seed and the number of the round.

Shapes: B games.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ludus.games.elementwise import ElementwiseGame
from ludus.games.game import State
from ludus.games.ppo.counter_random import Key, key, uniform


class Keys(NamedTuple):
    """The streams of random numbers of a run."""

    first: Key
    """The starts of the first games."""
    step: Key
    """One word per step: the draw of its action, and the start of the next game, if the step ends one."""
    shuffle: Key


def keys_of(seed: int) -> Keys:
    """Return the streams of this seed."""
    return Keys(*[key(seed, f"ppo/{name}") for name in Keys._fields])


def action_draws(words: Tensor, *, num_draws: int, num_uniforms: int) -> Tensor:
    """Return the uniform numbers of an action from each word, stacked in a new last dimension.

    The first comes from the word itself; the others follow those that a start uses.
    """
    nths = [0, *[num_uniforms + other for other in range(1, num_draws)]]
    return torch.stack([uniform(words, nth) for nth in nths], -1)


def started(game: ElementwiseGame, word_B: Tensor) -> State:
    """Return new games from a random word each."""
    return game.start(torch.stack([uniform(word_B, 1 + nth) for nth in range(game.num_uniforms)]))
