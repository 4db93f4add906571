"""The scenario `pettingzoo`: a multi-agent task in which agents act instead of speaking."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import torch

from ludus.arena.playing.parallel_env import ParallelEnvSection
from ludus.arena.protocols.parallel import Parallel
from ludus.arena.scenario import Datasets, NoDatasets, ObservationSizes, Scenario
from ludus.arena.scenarios.pettingzoo.environment import OBSERVATION, ParallelEnvironment
from ludus.arena.scenarios.pettingzoo.spec import make_env, spec_of
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError, LudusError

if TYPE_CHECKING:
    from ludus.arena.protocol import ProtocolHandler


class PettingZooParameters(StrictConfig):
    """The env, and the maximum length of an episode."""

    kind: Literal["pettingzoo"]
    """A parallel env of PettingZoo: all agents act simultaneously, in every step."""
    env: ParallelEnvSection
    """The env."""
    max_episode_steps: Positive
    """Truncate an episode after this many steps, if the env has not ended it before."""

    def problems(self) -> Iterator[str]:
        """Yield each reason why agents cannot act in the env."""
        try:
            spec_of(self.env)
        except LudusError as error:
            yield f"'env': {error}"


@register("scenario", "pettingzoo")
class PettingZoo(Scenario):
    """A scenario of envs without data; its agents are those of the env, and a symbol is an action."""

    Config = PettingZooParameters
    params: PettingZooParameters

    @classmethod
    def joined(cls, params: StrictConfig, handler: ProtocolHandler) -> ProtocolHandler:
        """Return the protocol `parallel`, which takes its agents from the env."""
        assert isinstance(params, PettingZooParameters)
        if not isinstance(handler, Parallel):
            raise ConfigError(
                "the scenario pettingzoo has agents and turns of its own; make 'protocol' {kind: parallel}"
            )
        return handler.of(spec_of(params.env).agent_names)

    def make_datasets(self, seed: int) -> Datasets:
        """Return NoDatasets."""
        return NoDatasets("pettingzoo")

    @property
    def num_symbols(self) -> int:
        """The largest number of actions of an agent."""
        return max(spec_of(self.params.env).num_actions)

    def data_names(self, datasets: Datasets) -> list[str]:
        """Return the name of the observation."""
        return [OBSERVATION]

    def seen_by(self, agent: str, datasets: Datasets, handler: ProtocolHandler) -> ObservationSizes:
        """Return the sizes of the observation and the actions of this agent."""
        spec = spec_of(self.params.env)
        place = spec.agent_names.index(agent)
        shapes: dict[str, tuple[int, ...]] = {OBSERVATION: (spec.num_numbers[place],)}
        return ObservationSizes(
            shapes, spec.num_actions[place], max_message_rounds=0, num_channels=1
        )

    def make_environment(
        self,
        name: str,
        datasets: Datasets,
        handler: ProtocolHandler,
        *,
        num_envs: int,
        num_steps: int | None,
        seed: int,
        device: torch.device,
    ) -> ParallelEnvironment:
        """Return envs: those for training run for this many steps, the others play one episode."""
        env = self.params.env
        return ParallelEnvironment(
            functools.partial(make_env, env),
            spec_of(env),
            num_envs=num_envs,
            num_steps=num_steps if name == "train" else None,
            max_episode_steps=self.params.max_episode_steps,
            seed=seed,
            name=name,
            device=device,
        )
