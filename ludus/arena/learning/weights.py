"""The weights of agents as a part, and those of one agent out of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ludus.arena.agents.combined import CombinedAgents
from ludus.core import states
from ludus.nn.module_state import ModuleState

_PREFIX = "agents."


def of_agents(saved: Mapping[str, Tensor], agents: CombinedAgents) -> dict[str, Tensor]:
    """Return the weights of agents from those of a network that holds them as its `agents`.

    Raises StateError unless they fit the agents.
    """
    named = saved.items()
    own = {name.removeprefix(_PREFIX): one for name, one in named if name.startswith(_PREFIX)}
    AgentWeights(agents).check(own)
    return own


class AgentWeights:
    """The complete state of the agents, by name."""

    def __init__(self, agents: CombinedAgents) -> None:
        self._held = ModuleState(agents, without=())

    def weights(self) -> dict[str, Tensor]:
        """Return a copy on the CPU."""
        named = self._held.tensors().items()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in named}

    def check(self, saved: Mapping[str, Tensor]) -> None:
        """Raise StateError unless these weights fit the agents."""
        self._held.check(saved)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load these weights into the agents."""
        self._held.load(weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights."""
        return {"weights": self._held.tensors()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load saved weights."""
        states.check_keys(state, "weights")
        with states.within("weights"):
            self._held.load(states.mapping(state, "weights"))
