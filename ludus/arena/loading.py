"""The agents of an arena run: rebuilt without its loss and rollouts, found in its states, started from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.learning.update import GradientUpdate
from ludus.arena.learning.weights import AgentWeights, of_agents
from ludus.arena.scenario import ScenarioInstance
from ludus.core.abilities import Supplied, made, ungiven
from ludus.core.errors import ConfigError
from ludus.nn.start import StartTarget

if TYPE_CHECKING:
    from ludus.arena.trainer import TensorDictTrainer


class KeptAgents:
    """The agents of a scenario instance."""

    def __init__(self, agents: CombinedAgents) -> None:
        self._agents = agents

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights of the agents in a saved state."""
        if "agents" in state:
            weights: Mapping[str, Any] = state["agents"]["weights"]
            return weights
        return of_agents(state["update"]["learner"]["weights"], self._agents)

    def loaded(self, weights: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, nn.Module]:
        """Return each agent by name, with these weights, in eval mode."""
        AgentWeights(self._agents).load_weights(weights)
        self._agents.eval()
        return {name: self._agents.member(name) for name in self._agents.names}


def kept(trainer: TensorDictTrainer, given: Supplied) -> KeptAgents:
    """Return the agents of a trainer that is not prepared; a method of it."""
    instance = made(given.network)
    if instance is not None and not isinstance(instance, ScenarioInstance):
        raise ConfigError(
            f"network was given a {type(instance).__name__}; the agents of an arena run are those of a"
            " scenario instance: give what ludus.build_scenario_instance(config) returns, or import the"
            " modules of their kinds (plugin=...)"
        )
    if instance is None and "scenario_instance" in given.by_script:
        raise ungiven("scenario instance", trainer.config.name)
    trainer.given_instance = instance or trainer.given_instance
    return KeptAgents(trainer.built_agents())


class LearningAgents(Protocol):
    """A trainer whose agents are updated by gradients."""

    @property
    def update(self) -> GradientUpdate: ...
    @property
    def agents(self) -> CombinedAgents: ...


def starting(trainer: LearningAgents) -> StartTarget:
    """Return the agents, which can start as those of another run; a method of the trainer."""
    return trainer.update.starting()


def weights_of(trainer: LearningAgents, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the weights of the agents in a saved state; a method of the trainer."""
    return of_agents(state["update"]["learner"]["weights"], trainer.agents)
