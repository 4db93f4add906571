"""Inputs of the PPO kernels: the hyperparameters of an iteration, and the states of the games."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ludus.games.game import State


@dataclass(frozen=True, kw_only=True)
class PpoNumbers:
    """The hyperparameters of an iteration; learning rate and clip are passed to each call."""

    num_games: int
    rollout_steps: int
    num_epochs: int
    """The number of epochs over each rollout."""
    num_minibatches: int
    """The number of minibatches of an epoch; each is an update."""
    reward_scale: float
    """The factor of rewards for learning."""
    gamma: float
    gae_lambda: float
    value_clip: float | None
    value_coef: float
    entropy_coef: float
    normalise_advantage: bool

    @property
    def num_rows(self) -> int:
        """The number of steps of a rollout, of all games together."""
        return self.num_games * self.rollout_steps

    @property
    def num_updates(self) -> int:
        """The number of gradient steps of an iteration."""
        return self.num_epochs * self.num_minibatches


class Live(NamedTuple):
    """The states of the games between two iterations."""

    state: State
    returns: Tensor
    """(B,) the return so far of each game; float32."""
    iteration: Tensor
    """The number of finished iterations; one int64 on the device."""
