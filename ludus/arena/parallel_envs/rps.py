"""The parallel env `rps`: PettingZoo's rock, paper, scissors, round after round."""

from __future__ import annotations

from typing import Literal

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker, imported
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


class RpsParameters(StrictConfig):
    """For how long it is played."""

    kind: Literal["rps"]
    """Rock, paper, scissors: a game of two players who choose at once, and see the other's last choice."""
    max_cycles: Positive
    """How many steps an episode has; the env truncates it then."""


@register("parallel_env", "rps")
class Rps(ParallelEnvMaker):
    """Makes the env of PettingZoo's classic games."""

    Config = RpsParameters
    params: RpsParameters

    def make(self) -> AnyParallelEnv:
        """Return a new env."""
        module = imported(
            "pettingzoo.classic.rps.rps", what="the env rps", install="'ludus[arena]'"
        )
        env: AnyParallelEnv = module.parallel_env(max_cycles=self.params.max_cycles)
        return env
