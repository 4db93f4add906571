"""The parameters of pretraining."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from ludus.arena.agents.agent import AgentParameters
from ludus.arena.experiment import SubParameters
from ludus.config.base import Positive
from ludus.nn.optimizer import OptimizerSection


class PretrainingParameters(SubParameters):
    """The bodies to pretrain, and for how long."""

    agents: Annotated[list[str], Field(min_length=1)]
    """The agents whose bodies are pretrained: those of policy and value alike, where an agent has both.
    They learn at the rate of the optimizer below, whatever their learning_rate_factors and update_schedule.
    """
    iterations: Positive
    """The number of passes over the training data."""
    batch_size: Positive
    """The number of data per update; the last batch of a pass has the rest."""
    optimizer: OptimizerSection
    """The optimizer of pretraining; max_grad_norm is that of the run."""

    def problems_with(self, agents: Mapping[str, AgentParameters]) -> Iterator[str]:
        """Yield problems of the names, given all agents."""
        for name in self.agents:
            path, section = f"'pretraining.agents' names {name}", agents.get(name)
            lender = getattr(section, "shares_body_of", None)
            if section is None:
                yield f"{path}, which is no agent; there are {', '.join(agents)}"
            elif getattr(section, "body", None) is None:
                yield f"{path}, an agent of kind {section.kind}, which has no body; leave it out"
            elif self.agents.count(name) > 1:
                yield f"{path} twice; name it once"
                return
            elif lender is not None and lender not in self.agents:
                yield f"{path}, whose body is that of {lender}; name {lender} too, or instead"
