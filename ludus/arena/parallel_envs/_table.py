"""Parallel envs that other packages have; one that needs more code is a file of its own."""

from __future__ import annotations

from typing import Literal

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker, imported
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register

_VERSIONS = {"simple_speaker_listener": "v4"}
"""The versions of the tasks of mpe2, where it is not v3."""


def _made(module: str, name: str, **options: object) -> AnyParallelEnv:
    found = imported(module, what=f"the env {name}", install="'ludus[arena]'")
    env: AnyParallelEnv = found.parallel_env(**options)
    return env


class MpeParameters(StrictConfig):
    """The particle world, and the length of an episode."""

    kind: Literal["mpe"]
    """A multi-agent particle environment."""
    task: Literal[
        "simple",
        "simple_adversary",
        "simple_crypto",
        "simple_push",
        "simple_reference",
        "simple_speaker_listener",
        "simple_spread",
        "simple_tag",
    ]
    """The particle world."""
    max_cycles: Positive
    """The number of steps of an episode; the env truncates it then."""


@register("parallel_env", "mpe")
class Mpe(ParallelEnvMaker):
    """Particles in a plane that cover landmarks, chase or speak, of mpe2; actions are discrete."""

    Config = MpeParameters
    params: MpeParameters

    def make(self) -> AnyParallelEnv:
        """Return a new env."""
        task, max_cycles = self.params.task, self.params.max_cycles
        module = f"mpe2.{task}_{_VERSIONS.get(task, 'v3')}"
        return _made(module, task, max_cycles=max_cycles, continuous_actions=False)


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
    """PettingZoo's pursuers on a grid, of its SISL tasks, rewarded for surrounding evaders."""

    Config = PursuitParameters
    params: PursuitParameters

    def make(self) -> AnyParallelEnv:
        """Return a new env."""
        params = self.params
        return _made(
            "pettingzoo.sisl.pursuit.pursuit",
            "pursuit",
            max_cycles=params.max_cycles,
            n_pursuers=params.num_pursuers,
            n_evaders=params.num_evaders,
        )


class RpsParameters(StrictConfig):
    """The length of an episode."""

    kind: Literal["rps"]
    """Rock, paper, scissors: two players choose simultaneously, and observe the other's last choice."""
    max_cycles: Positive
    """The number of steps of an episode; the env truncates it then."""


@register("parallel_env", "rps")
class Rps(ParallelEnvMaker):
    """PettingZoo's repeated rock, paper, scissors, of its classic games."""

    Config = RpsParameters
    params: RpsParameters

    def make(self) -> AnyParallelEnv:
        """Return a new env."""
        return _made("pettingzoo.classic.rps.rps", "rps", max_cycles=self.params.max_cycles)
