"""What the kernels of PPO are given: the numbers that decide an iteration, and where the games stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ludus.games.game import State


@dataclass(frozen=True, kw_only=True)
class PpoNumbers:
    """The numbers that decide an iteration; learning rate and clip are given to each."""

    num_games: int
    rollout_steps: int
    num_epochs: int
    """How many times the updates go through each rollout."""
    num_minibatches: int
    """Into how many pieces each pass divides it; each is an update."""
    reward_scale: float
    """What rewards are multiplied by for learning."""
    gamma: float
    gae_lambda: float
    value_clip: float | None
    value_coef: float
    entropy_coef: float
    normalise_advantage: bool

    @property
    def num_rows(self) -> int:
        """How many steps a rollout has, of all games together."""
        return self.num_games * self.rollout_steps

    @property
    def num_updates(self) -> int:
        """How many gradient steps an iteration takes."""
        return self.num_epochs * self.num_minibatches


class Live(NamedTuple):
    """Where the games stand between two iterations."""

    state: State
    returns: Tensor
    """(B,) the sum of the rewards of each game so far; float32."""
    iteration: Tensor
    """How many iterations were made; one int64 on the device."""
