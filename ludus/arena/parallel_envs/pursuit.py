"""The parallel env `pursuit`: PettingZoo's pursuers on a grid, rewarded for surrounding evaders."""

from __future__ import annotations

from typing import Literal

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker, imported
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


class PursuitParameters(StrictConfig):
    """The numbers of pursuers and evaders, and the length of an episode."""

    kind: Literal["pursuit"]
    """Pursuers that surround evaders on a grid; each observes the cells around it."""
    max_cycles: Positive
    """The number of steps of an episode; the env truncates it then."""
    num_pursuers: Positive
    """The number of agents: pursuer_0 and so on."""
    num_evaders: Positive
    """The number of evaders, which move at random."""


@register("parallel_env", "pursuit")
class Pursuit(ParallelEnvMaker):
    """Makes the env of PettingZoo's SISL tasks."""

    Config = PursuitParameters
    params: PursuitParameters

    def make(self) -> AnyParallelEnv:
        """Return a new env."""
        params = self.params
        module = imported(
            "pettingzoo.sisl.pursuit.pursuit", what="the env pursuit", install="'ludus[arena]'"
        )
        env: AnyParallelEnv = module.parallel_env(
            max_cycles=params.max_cycles,
            n_pursuers=params.num_pursuers,
            n_evaders=params.num_evaders,
        )
        return env
