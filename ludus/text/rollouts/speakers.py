"""Speakers: what answers for an agent in its turns: a model, or demonstrations of a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from ludus.seeds import derive
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.rollouts.play import Answer, TurnRequest
from ludus.text.scenario import TextScenario


class Asks(Protocol):
    """Asks a model, and remembers the answer; `ludus.text.client.Client` does."""

    async def chat(
        self, request: ChatRequest, *, key: str, agent: str, stage: str
    ) -> ChatAnswer: ...


class Sampling(Protocol):
    """How an agent's answers are sampled, as its section of a config says."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def max_retries(self) -> int: ...


@dataclass(frozen=True)
class ModelSpeaker:
    """Answers with samples from a model."""

    client: Asks
    model: str
    sampling: Sampling
    seed: int
    """The seed of the run: that of a request follows from it and the key of the turn."""
    stage: str
    """The stage that pays for it."""
    temperature: float | None = None
    """Instead of that of the agent, for tests."""
    logprobs: bool = False
    """Ask for the tokens and their log-probabilities."""

    @property
    def max_retries(self) -> int:
        return self.sampling.max_retries

    async def answer(self, asked: TurnRequest, count: int) -> list[Answer]:
        """Return samples for so many episodes, by one request."""
        own = self.sampling
        request = ChatRequest(
            model=self.model,
            messages=asked.prompt,
            n=count,
            seed=derive(self.seed, f"text/{asked.key}"),
            max_tokens=own.max_tokens,
            temperature=own.temperature if self.temperature is None else self.temperature,
            top_p=own.top_p,
            logprobs=self.logprobs,
        )
        found = await self.client.chat(request, key=asked.key, agent=asked.agent, stage=self.stage)
        return [
            Answer(
                text=choice.text,
                tokens=choice.num_tokens,
                # The prompt is paid once for all samples of a request.
                prompt_tokens=found.prompt_tokens if number == 0 else 0,
                is_truncated=choice.finish_reason == "length",
                logprobs=tuple(one.logprob for one in choice.logprobs or ()),
                token_ids=tuple(one.token for one in choice.logprobs or ()),
            )
            for number, choice in enumerate(found.choices)
        ]


@dataclass(frozen=True)
class Demonstrator:
    """Answers as a scenario demonstrates: the form of an answer, not the solution."""

    scenario: TextScenario
    words: Mapping[int, str]
    """The line that means each decision."""
    seed: int
    max_retries: int = 0

    async def answer(self, asked: TurnRequest, count: int) -> Sequence[Answer]:
        """Return demonstrations, each from a generator that follows from the key of the turn."""
        return [Answer(self._one(asked, number)) for number in range(count)]

    def _one(self, asked: TurnRequest, number: int) -> str:
        random = Random(derive(self.seed, f"text/demonstrations/{asked.key}", number))
        episode = asked.episode
        found = self.scenario.demonstrate(
            asked.agent, episode.row, episode.y, decides=asked.may_decide, random=random
        )
        return found if isinstance(found, str) else self.words[found]
