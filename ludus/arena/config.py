"""The parameters of an experiment in the arena: everything that decides its result.

ExperimentParameters    scenario, agents and optimizer, for every trainer
  HyperParameters       the protocol they meet under besides
    RlHyperParameters   what RL trainers add: rollouts, updates, evaluation, tests (rl_config.py)
SubParameters           a section of them; each trainer adds its own, such as `ppo` (rules.py)
ExperimentSettings      what does not decide the result, as for every trainer of ludus
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

from torch import nn

from ludus.arena.agents.agent import AgentParameters, AgentSection
from ludus.arena.protocol import ProtocolHandler, ProtocolSection
from ludus.arena.scenario import Scenario, ScenarioSection
from ludus.config import shared_keys
from ludus.config.base import PositiveFloat, Settings, TrainerConfig
from ludus.config.counted import CountedConfig
from ludus.config.evaluation import EvaluationConfig
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.config.start import StartConfig
from ludus.core.errors import LudusError, nearest
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.schedules import ScheduleSection, highest

ExperimentSettings = Settings


class JudgingParameters(EvaluationConfig):
    """The evaluation of agents while they train, and the condition that stops the run."""

    target: float | None
    """Stop as soon as the score reaches this; null: never."""


class ExperimentParameters(CountedConfig):
    """The parameters of every trainer of the arena."""

    may_change: ClassVar[tuple[str, ...]] = ("learning_rate_schedule",)

    unit = "iteration"
    tensors = "data and episodes"
    records_last = True

    scenario: ScenarioSection
    """The scenario: the data that the agents speak about."""
    agents: dict[str, AgentSection]
    """Each agent, by name."""
    start: StartConfig | None
    """The run to start from; null starts from new weights."""
    optimizer: OptimizerSection
    """The optimizer."""
    learning_rate_schedule: ScheduleSection
    """The schedule of the learning rate over the optimization steps, relative to the optimizer's own rate."""
    max_grad_norm: PositiveFloat | None
    """Clip the gradient of all agents together to this norm; null does not clip."""

    @classmethod
    def like(cls, other: TrainerConfig, **changes: object) -> Self:
        """Return these parameters with the keys shared with another config, and some given or changed.

        A key is a name of this class, or a dotted path below one.
        """
        return shared_keys.like(cls, other, changes)

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        yield from self.problems_of_settings()
        # Agents are held in a ModuleDict, so that weights are named by agent.
        taken = nn.ModuleDict()
        for name in self.agents:
            if hasattr(taken, name):
                yield (
                    f"'agents.{name}': no agent can be named '{name}', for modules of torch have an attribute"
                    f" of that name; choose another, such as '{name}_0', in the env too where one names it"
                )

    def handler(self) -> ProtocolHandler:
        """Return the protocol of the agents."""
        raise NotImplementedError

    @property
    def highest_rate(self) -> float:
        """The largest learning rate of the schedule."""
        return highest(self.learning_rate_schedule, self.optimizer.learning_rate)

    def learning(self, iteration: int) -> list[str]:
        """Return the names of the agents that learn in this iteration."""
        sections = self.agents.items()
        return [name for name, one in sections if one.update_schedule.is_learning(iteration)]

    def never_learning(self, num_iterations: int) -> list[str]:
        """Return the agents that are frozen in all iterations."""
        everywhere = range(num_iterations)
        sections = self.agents.items()
        return [
            name
            for name, one in sections
            if not any(map(one.update_schedule.is_learning, everywhere))
        ]

    def problems_of_bodies(self) -> Iterator[str]:
        """Yield problems of shared bodies."""
        for name, section in self.agents.items():
            other = getattr(section, "shares_body_of", None)
            if other is None:
                continue
            path = f"'agents.{name}.shares_body_of' is {other}"
            found = self.agents.get(other)
            if found is None or other == name or getattr(found, "body", None) is None:
                yield f"{path}, which is no other agent with a body; name one, or set null"
            elif getattr(found, "shares_body_of", None) is not None:
                yield f"{path}, which has no body of its own; name the agent it shares one with"
            elif found.body != section.body:  # type: ignore[attr-defined]
                yield f"{path}, but their bodies are described differently; make 'body' the same in both"

    def problems_of_learning(self, num_iterations: int) -> Iterator[str]:
        """Yield a problem if no agent ever learns."""
        frozen = self.never_learning(num_iterations)
        if all(name in frozen or _is_still(one) for name, one in self.agents.items()):
            names, is_one = ", ".join(self.agents), len(self.agents) == 1
            which = f"the only agent, {names}, is" if is_one else f"all agents, {names}, are"
            yield (
                f"'agents': {which} frozen in all {num_iterations} iterations, so nothing would be"
                " learned; let an 'update_schedule' learn, at a rate above 0"
            )


class HyperParameters(ExperimentParameters):
    """Everything that specifies an experiment, for every trainer of the arena with a protocol."""

    protocol: ProtocolSection
    """The protocol: who speaks when, who decides, and the rewards."""

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        yield from super().problems()
        if list(self.scenario.problems()):
            return  # reported with the section itself
        try:
            handler = self.handler()
        except LudusError as error:
            yield f"'protocol': {error}"
            return
        yield from self._problems_of_agents(handler)

    def handler(self) -> ProtocolHandler:
        """Return the rules of the protocol."""
        rules: ProtocolHandler = find("protocol", self.protocol.kind)(self.protocol)
        scenario: type[Scenario] = find("scenario", kind_of(self.scenario))
        return scenario.joined(self.scenario, rules)

    def _problems_of_agents(self, handler: ProtocolHandler) -> Iterator[str]:
        names, kind = handler.agent_names, self.protocol.kind
        for name in self.agents:
            if name not in names:
                yield f"'agents.{name}': the protocol {kind} has no agent '{name}'.{nearest(name, names)}"
        for name in names:
            if name not in self.agents:
                yield f"'agents': the protocol {kind} needs an agent '{name}'; describe it there"
        yield from self.problems_of_bodies()


def _is_still(section: AgentParameters) -> bool:
    """Return whether the factors of all parts of an agent are 0."""
    factors = getattr(section, "learning_rate_factors", None)
    return factors is not None and not any(factors.model_dump().values())
