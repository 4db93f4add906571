"""The parallel env `rps`: PettingZoo's repeated rock, paper, scissors."""

from __future__ import annotations

from typing import Literal

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker, imported
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


class RpsParameters(StrictConfig):
    """The length of an episode."""

    kind: Literal["rps"]
    """Rock, paper, scissors: two players choose simultaneously, and observe the other's last choice."""
    max_cycles: Positive
    """The number of steps of an episode; the env truncates it then."""


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
