"""Playing episodes of a protocol: rounds in which the agents with a turn are asked, many episodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ludus.arena.protocol import CONTINUE, ProtocolHandler
from ludus.text.chat import ChatMessage
from ludus.text.rollouts.episodes import TextEpisode, Turn
from ludus.text.rollouts.prompts import PromptBook
from ludus.text.rollouts.reading import AnswerReading, read_answer


class TurnRequest(NamedTuple):
    """What a speaker is asked in one turn."""

    agent: str
    prompt: tuple[ChatMessage, ...]
    key: str
    """Names the turn among all turns of the run: the seed of the answer follows from it."""
    episode: TextEpisode
    round_index: int
    may_decide: bool


class Answer(NamedTuple):
    """What a speaker answered in one of several episodes with the same prompt."""

    text: str
    tokens: int = 0
    prompt_tokens: int = 0
    is_truncated: bool = False
    logprobs: tuple[float, ...] = ()
    token_ids: tuple[int, ...] = ()


class Speaker(Protocol):
    """Answers for an agent: a model, a script or a person."""

    @property
    def max_retries(self) -> int:
        """How often it is asked again where an answer cannot be read."""

    async def answer(self, asked: TurnRequest, count: int) -> Sequence[Answer]:
        """Return so many answers to one prompt."""


@dataclass(frozen=True)
class TextTable:
    """A protocol with its prompts and the speakers of its agents."""

    handler: ProtocolHandler
    prompts: PromptBook
    speakers: Mapping[str, Speaker]

    async def play(
        self, episodes: Sequence[TextEpisode], key: str, *, forks: int = 1
    ) -> list[TextEpisode]:
        """Return episodes about one question, played to their ends.

        Before each round an episode that is not over becomes `forks` of them: the leaves of a tree.
        `key` names them among all that the run plays.
        """
        playing = list(episodes)
        for round_index in range(self.handler.max_message_rounds):
            if all(one.is_over for one in playing):
                break
            if forks > 1:
                playing = [fork for one in playing for fork in one.forked(forks)]
            going = [one for one in playing if not one.is_over]
            await self._round(going, round_index, f"{key}/{round_index}")
        return playing

    async def _round(self, episodes: Sequence[TextEpisode], round_index: int, key: str) -> None:
        """Play one round: the agents that move at once do not read each other's messages of it."""
        jobs = []
        turns: list[dict[str, Turn]] = [{} for _ in episodes]
        for agent in self.handler.agent_names:
            places = [i for i, one in enumerate(episodes) if agent in self._turn(one, round_index)]
            for number, group in enumerate(self._by_prompt(agent, episodes, places, round_index)):
                jobs.append(self._ask(agent, group, episodes, turns, f"{key}/{agent}/{number}"))
        await asyncio.gather(*jobs)
        for episode, found in zip(episodes, turns, strict=True):
            order = [name for name in self.handler.agent_names if name in found]
            episode.rounds.append({name: found[name] for name in order})
            episode.is_over = self._is_over(episode, round_index)

    def _turn(self, episode: TextEpisode, round_index: int) -> Mapping[str, tuple[str, ...]]:
        return self.handler.turn(round_index, self._variant(episode))

    def _variant(self, episode: TextEpisode) -> int:
        return episode.seed % self.handler.num_variants

    def _by_prompt(
        self, agent: str, episodes: Sequence[TextEpisode], places: Sequence[int], round_index: int
    ) -> Iterator[tuple[TurnRequest, list[int]]]:
        """Yield the episodes with the same prompt together, so that one request serves them."""
        groups: dict[tuple[tuple[ChatMessage, ...], bool, tuple[str, ...]], list[int]] = {}
        for place in places:
            episode = episodes[place]
            may = self.handler.decides(agent, round_index, self._variant(episode))
            prompt = self.prompts.messages(
                agent,
                episode.row,
                episode.heard_by(agent, self.handler),
                round_index=round_index,
                may_decide=may,
            )
            channels = self._turn(episode, round_index)[agent]
            groups.setdefault((prompt, may, channels), []).append(place)
        for (prompt, may, _), members in groups.items():
            first = episodes[members[0]]
            yield TurnRequest(agent, prompt, "", first, round_index, may), members

    async def _ask(
        self,
        agent: str,
        group: tuple[TurnRequest, list[int]],
        episodes: Sequence[TextEpisode],
        turns: list[dict[str, Turn]],
        key: str,
    ) -> None:
        """Ask until every answer can be read, or the agent has no more tries."""
        asked, waiting = group
        speaker = self.speakers[agent]
        spent = dict.fromkeys(waiting, 0)
        for attempt in range(speaker.max_retries + 1):
            again = f"{key}/{attempt}" if attempt else key
            answers = await speaker.answer(asked._replace(key=again), len(waiting))
            is_last = attempt == speaker.max_retries
            unread = []
            for place, answer in zip(waiting, answers, strict=True):
                spent[place] += answer.tokens
                reading = self._read(asked, answer.text, episodes[place])
                if not reading.is_well_formed and not is_last:
                    unread.append(place)
                    continue
                turns[place][agent] = _turn(asked, answer, reading, attempt, spent[place])
            waiting = unread
            if not waiting:
                return

    def _read(self, asked: TurnRequest, text: str, episode: TextEpisode) -> AnswerReading:
        is_last = asked.round_index == self.handler.max_message_rounds - 1
        channels = self._turn(episode, asked.round_index)[asked.agent]
        return read_answer(
            text,
            channels=channels,
            words=self.prompts.decision_words(asked.agent),
            may_decide=asked.may_decide,
            # Where nothing can be said, an answer that decides nothing says nothing.
            must_decide=asked.may_decide and (is_last or not channels),
        )

    def _is_over(self, episode: TextEpisode, round_index: int) -> bool:
        variant = self._variant(episode)
        if round_index == self.handler.max_message_rounds - 1:
            return True
        is_forced = self.handler.rules.force_guess is not None
        return any(
            is_forced or turn.decision != CONTINUE
            for name, turn in episode.rounds[-1].items()
            if self.handler.decides(name, round_index, variant)
        )


def _turn(
    asked: TurnRequest, answer: Answer, reading: AnswerReading, retries: int, tokens: int
) -> Turn:
    return Turn(
        prompt=asked.prompt,
        text=answer.text,
        messages=reading.messages,
        decision=reading.decision,
        tokens=tokens,
        prompt_tokens=answer.prompt_tokens,
        retries=retries,
        is_truncated=answer.is_truncated,
        is_malformed=not reading.is_well_formed,
        logprobs=answer.logprobs,
        token_ids=answer.token_ids,
    )
