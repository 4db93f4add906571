"""The parameters of trainers of text: scenario, protocol, agents, rollouts, jobs, provider and budget.

TextHyperParameters    what every trainer of text has; each adds its own section, such as `expert_iteration`
TextAgentParameters    an agent: the model it speaks by, and how its answers are sampled
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from ludus.arena.protocol import ProtocolHandler
from ludus.arena.rules import ProtocolSection
from ludus.config import shared_keys
from ludus.config.base import (
    Count,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    PositiveShare,
    StrictConfig,
    TrainerConfig,
)
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import LudusError, nearest
from ludus.text.analyser import TextAnalyserSection
from ludus.text.client.config import ClientConfig, SpendingConfig
from ludus.text.provider import ProviderSection
from ludus.text.rollouts.prompts import PromptBook, prompt_file, read_prompts
from ludus.text.scenario import TextScenario, TextScenarioSection

TestScheme = Literal["none", "all", "last", "first_and_last"]


class TextAgentParameters(StrictConfig):
    """An agent that is a language model."""

    model: str
    """The model it begins with, by its name at the provider."""
    group: str | None
    """Agents of the same group share a model and learn together; null: the agent is a group by itself."""
    frozen: bool
    """Never tune its model."""
    temperature: NonNegativeFloat
    """The temperature of its answers; 0 takes the most likely token."""
    top_p: PositiveShare
    """Sample from the most likely tokens of this total probability; 1.0 from all."""
    max_tokens: Positive
    """The maximum number of tokens of an answer."""
    max_retries: Count
    """How often it is asked again where an answer cannot be read."""


class TextRolloutParameters(StrictConfig):
    """Rollouts and tests."""

    rollouts_per_iteration: Positive
    """The number of episodes of an iteration."""
    rollouts_per_question: Positive
    """The number of episodes about the same question; they share a request where their prompts are equal."""
    num_test_iterations: Count
    """The number of iterations of test episodes after training; 0 means no test."""

    _num_iterations: int = PrivateAttr(0)

    @property
    def num_iterations(self) -> int:
        """The number of training iterations: `max_iterations` of the file."""
        return self._num_iterations

    @property
    def questions_per_iteration(self) -> int:
        """The number of questions of an iteration."""
        return self.rollouts_per_iteration // self.rollouts_per_question

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if self.rollouts_per_iteration % self.rollouts_per_question:
            yield (
                f"'rollouts_per_iteration' is {self.rollouts_per_iteration}, which"
                f" 'rollouts_per_question' {self.rollouts_per_question} does not divide; make it a multiple"
            )


class TextRlParameters(StrictConfig):
    """Tests while training, and what agents learn from."""

    test_scheme: TestScheme
    """The iterations in which agents are tested: none, all, the last, or first_and_last."""
    test_on_whole_dataset: bool
    """Test on each test question once; false: in as many episodes as an iteration has."""
    test_temperature: NonNegativeFloat | None
    """The temperature of answers in tests; null: that of each agent."""
    fine_tune_on_all_previous_rollouts: bool
    """Learn from the rollouts of all iterations so far; false: of this one alone."""
    fine_tune_from_scratch: bool
    """Tune the model that the agents began with, each time; false: the newest one."""

    def is_tested(self, iteration: int, length: int) -> bool:
        """Return whether agents are tested in this iteration, counted from 0, of so many."""
        is_last = iteration == length - 1
        if self.test_scheme == "first_and_last":
            return is_last or iteration == 0
        return self.test_scheme == "all" or (self.test_scheme == "last" and is_last)


class FineTuningParameters(StrictConfig):
    """The hyperparameters of fine-tuning jobs; null leaves one to the provider."""

    num_epochs: Positive | None
    """The number of passes over the examples."""
    batch_size: Positive | None
    """The number of examples of an update."""
    learning_rate_multiplier: PositiveFloat | None
    """A factor of the provider's own learning rate."""

    def hyperparameters(self) -> dict[str, float | int]:
        """Return those that are given, under the names of the jobs API."""
        found = {
            "n_epochs": self.num_epochs,
            "batch_size": self.batch_size,
            "learning_rate_multiplier": self.learning_rate_multiplier,
        }
        return {name: value for name, value in found.items() if value is not None}


class TextPretrainingParameters(FineTuningParameters):
    """Supervised tuning on demonstrations of the scenario, before the first iteration."""

    num_episodes: Positive
    """The number of episodes that are demonstrated."""


class TextHyperParameters(TrainerConfig):
    """Everything that specifies an experiment with agents of text."""

    unit: ClassVar[str] = "iteration"
    may_change: ClassVar[tuple[str, ...]] = ("client", "budget", "provider")

    scenario: TextScenarioSection
    """The questions."""
    protocol: ProtocolSection
    """The protocol: who speaks when, who decides, and the rewards."""
    prompts: str | None
    """A YAML file with the prompts of each agent; null: those that ludus ships for scenario and protocol."""
    agents: Annotated[dict[str, TextAgentParameters], Field(min_length=1)]
    """Each agent, by name."""
    max_iterations: Positive
    """The number of training iterations, each of rollouts and, but for the last, tuning."""
    rl: TextRolloutParameters
    """Rollouts and tests."""
    text_rl: TextRlParameters
    """Tests while training, and what agents learn from."""
    fine_tuning: FineTuningParameters
    """The hyperparameters of fine-tuning jobs."""
    pretraining: TextPretrainingParameters | None
    """Tune each group on demonstrations first; null: no pretraining."""
    analysers: list[TextAnalyserSection]
    """Analysers of all rollouts, whose metrics are logged; [] is none."""
    provider: ProviderSection
    """Where models are sampled from and tuned."""
    client: ClientConfig
    """How the provider is asked: pace, retries, deadlines. It does not affect the result."""
    budget: SpendingConfig
    """Prices, and the most that the run may spend."""

    @classmethod
    def like(cls, other: TrainerConfig, **changes: object) -> Self:
        """Return these parameters with the keys shared with another config, and some given or changed.

        A key is a name of this class, or a dotted path below one.
        """
        return shared_keys.like(cls, other, changes)

    @model_validator(mode="after")
    def _set_num_iterations(self) -> TextHyperParameters:
        self.rl._num_iterations = self.max_iterations
        return self

    @property
    def length(self) -> int:
        """The number of iterations of the run."""
        return self.max_iterations

    def handler(self) -> ProtocolHandler:
        """Return the rules of the protocol."""
        found: ProtocolHandler = find("protocol", self.protocol.kind)(self.protocol)
        return found

    def make_scenario(self) -> TextScenario:
        """Return the scenario."""
        found: TextScenario = find("text_scenario", kind_of(self.scenario))(self.scenario)
        return found

    def make_prompts(self, handler: ProtocolHandler, columns: tuple[str, ...]) -> PromptBook:
        """Return the prompts; raise ConfigError for each mistake in their file."""
        path = self.prompts or prompt_file(kind_of(self.scenario), self.protocol.kind)
        return read_prompts(Path(path), handler, columns)

    @property
    def training_epochs(self) -> int:
        """The number of passes over what an iteration learns from, where the config says."""
        return self.fine_tuning.num_epochs or 1

    def groups(self) -> dict[str, list[str]]:
        """Return the agents of each group that shares a model, in the order of the file."""
        found: dict[str, list[str]] = {}
        for name, agent in self.agents.items():
            found.setdefault(agent.group or name, []).append(name)
        return found

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        yield from self._problems_of_settings()
        try:
            handler = self.handler()
        except LudusError as error:
            yield f"'protocol': {error}"
            return
        yield from self._problems_of_agents(handler)
        yield from self._problems_of_groups()
        yield from self._problems_of_analysers()

    def _problems_of_settings(self) -> Iterator[str]:
        settings = self.settings
        if settings.workers:
            yield (
                f"'settings.workers' is {settings.workers}, but requests are made by this process;"
                " set it to 0, and 'client.max_concurrency' to the number at once"
            )
        if settings.checkpoint.every_epochs:
            yield (
                f"'settings.checkpoint.every_epochs' is {settings.checkpoint.every_epochs}, but a run counted"
                " in iterations has no epochs; set it to 0, and use every_stages"
            )

    def _problems_of_analysers(self) -> Iterator[str]:
        kinds = [kind_of(section) for section in self.analysers]
        for kind in sorted({kind for kind in kinds if kinds.count(kind) > 1}):
            yield f"'analysers' names {kind} {kinds.count(kind)} times; once is enough"

    def _problems_of_agents(self, handler: ProtocolHandler) -> Iterator[str]:
        names, kind = handler.agent_names, self.protocol.kind
        if not handler.has_rounds:
            yield f"'protocol.kind' is {kind}, that of an env; choose one in which agents speak, such as nip"
            return
        if type(handler).side_rewards is not ProtocolHandler.side_rewards:
            yield (
                f"'protocol.kind' is {kind}, which rewards messages that are symbols, and text is none;"
                " choose a protocol whose rewards follow from decisions"
            )
            return
        for name in self.agents:
            if name not in names:
                yield f"'agents.{name}': the protocol {kind} has no agent '{name}'.{nearest(name, names)}"
        for name in names:
            if name not in self.agents:
                yield f"'agents': the protocol {kind} needs an agent '{name}'; describe it there"
        if all(agent.frozen for agent in self.agents.values()) and self.max_iterations > 1:
            yield (
                "'agents': all are frozen, so nothing would be learned; free one, or set 'max_iterations'"
                " to 1 to sample and test alone"
            )

    def _problems_of_groups(self) -> Iterator[str]:
        for group, names in self.groups().items():
            first = names[0]
            for name in names[1:]:
                for key in ("model", "frozen"):
                    one, other = (getattr(self.agents[x], key) for x in (first, name))
                    if one != other:
                        yield (
                            f"'agents.{name}.{key}' is {other}, but {first}, of the same group '{group}', has"
                            f" {one}; a group shares a model: make them equal, or give it another group"
                        )
