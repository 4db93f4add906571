"""Small protocols, prompts and speakers for the tests of text."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.arena.protocol import ProtocolHandler
from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.text.rollouts.episodes import TextEpisode
from ludus.text.rollouts.play import Answer, TextTable, TurnRequest
from ludus.text.rollouts.prompts import PromptBook, PromptConfig

ADP: dict[str, Any] = {
    "kind": "adp",
    "force_guess": None,
    "verifier_reward": 1.0,
    "verifier_incorrect_reward": 0.0,
    "verifier_terminated_reward": -1.0,
    "shared_reward": False,
    "prover_reward": 1.0,
}
NIP: dict[str, Any] = {
    **ADP,
    "kind": "nip",
    "max_message_rounds": 4,
    "min_message_rounds": 0,
    "verifier_continue_reward": 0.0,
    "verifier_first": False,
}
DEBATE: dict[str, Any] = {
    **NIP,
    "kind": "debate",
    "max_message_rounds": 3,
    "sequential": False,
    "prover0_first": None,
    "provers_hear_each_other": False,
    "verifier_first": True,
}
SOLO: dict[str, Any] = {
    key: ADP[key]
    for key in (
        "force_guess",
        "verifier_reward",
        "verifier_incorrect_reward",
        "verifier_terminated_reward",
    )
} | {"kind": "solo_verifier"}
PROMPT: dict[str, Any] = {
    "system": "",
    "question": "${q}",
    "heard": "${speaker} in ${channel}: ${text}",
    "speak": "",
    "decide": "",
    "accept": "yes",
    "reject": "no",
}


def handler_of(section: Mapping[str, Any]) -> ProtocolHandler:
    """Return the rules of a protocol."""
    kind = find("protocol", section["kind"])
    handler: ProtocolHandler = kind(validate(kind.Config, section, source="test"))
    return handler


def prompts_of(handler: ProtocolHandler, **changes: object) -> PromptBook:
    """Return short prompts for all agents of a protocol, with a column q."""
    section = validate(PromptConfig, {**PROMPT, **changes}, source="test")
    return PromptBook(dict.fromkeys(handler.agent_names, section), handler, ["q"], source="test")


class Scripted:
    """Answers from a list for each agent, in turn, and remembers what it was asked."""

    max_retries = 0

    def __init__(self, *answers: str, max_retries: int = 0) -> None:
        self._answers = list(answers)
        self.max_retries = max_retries
        self.asked: list[tuple[TurnRequest, int]] = []

    async def answer(self, asked: TurnRequest, count: int) -> Sequence[Answer]:
        self.asked.append((asked, count))
        return [Answer(self._answers.pop(0), tokens=2) for _ in range(count)]


def played(
    table: TextTable, episodes: Sequence[TextEpisode], *, forks: int = 1, key: str = "k"
) -> list[TextEpisode]:
    """Return episodes played to their ends."""
    return asyncio.run(table.play(episodes, key, forks=forks))


def episode(y: int = 1, *, seed: int = 0, group: int = 0, index: int = 0) -> TextEpisode:
    """Return a new episode."""
    return TextEpisode(index=index, row={"q": "what?"}, y=y, seed=seed, group=group)
