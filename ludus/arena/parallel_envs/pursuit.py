"""The parallel env `pursuit`: PettingZoo's pursuers on a grid, who gain by surrounding evaders."""

from __future__ import annotations

from typing import Literal

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker, imported
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


class PursuitParameters(StrictConfig):
    """How many there are, and for how long they run."""

    kind: Literal["pursuit"]
    """Pursuers that surround evaders on a grid; each sees the cells around it."""
    max_cycles: Positive
    """How many steps an episode has; the env truncates it then."""
    num_pursuers: Positive
    """How many agents there are: pursuer_0 and so on."""
    num_evaders: Positive
    """How many evaders move at random."""


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
