"""The parallel env `mpe`: particles in a plane that cover landmarks, chase or speak, of the package mpe2."""

from __future__ import annotations

from typing import Literal

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker, imported
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register

_MODULES = {
    "simple": "simple_v3",
    "simple_adversary": "simple_adversary_v3",
    "simple_crypto": "simple_crypto_v3",
    "simple_push": "simple_push_v3",
    "simple_reference": "simple_reference_v3",
    "simple_speaker_listener": "simple_speaker_listener_v4",
    "simple_spread": "simple_spread_v3",
    "simple_tag": "simple_tag_v3",
}


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
    """Makes envs of the package mpe2, with discrete actions."""

    Config = MpeParameters
    params: MpeParameters

    def make(self) -> AnyParallelEnv:
        """Return a new env."""
        task = self.params.task
        module = imported(
            f"mpe2.{_MODULES[task]}", what=f"the env {task}", install="'ludus[arena]'"
        )
        env: AnyParallelEnv = module.parallel_env(
            max_cycles=self.params.max_cycles, continuous_actions=False
        )
        return env
