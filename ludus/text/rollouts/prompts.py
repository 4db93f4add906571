"""Prompts: what each agent of a protocol is shown, from a YAML file that users can edit.

`prompts/<scenario>/<protocol>.yaml` holds those of a scenario, `prompts/<protocol>.yaml` those of any other.
In a text `${name}` stands for a column of the data, and for these:

    ${agent}     its name                 ${round}     the number of the round, from 1
    ${goal}      the word that a prover   ${rounds}    the number of rounds of an episode
                 argues for

and in `heard` also for `${speaker}`, `${channel}` and `${text}` of a message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from ludus.arena.protocol import ACCEPT, ProtocolHandler
from ludus.config import strict_yaml
from ludus.config.sections import StrictConfig, validate
from ludus.core.errors import ConfigError, nearest
from ludus.text.chat import ChatMessage

SHIPPED = Path(__file__).parents[1] / "prompts"
_ALWAYS = ("agent", "goal", "round", "rounds")
_OF_A_MESSAGE = ("speaker", "channel", "text")


class PromptConfig(StrictConfig):
    """What one agent is shown."""

    system: str
    """The system message; empty for none."""
    question: str
    """The beginning of its first message: the question, and what it should do."""
    heard: str
    """How a message of another agent is shown to it."""
    speak: str
    """Added to its newest message in a turn in which it speaks and may not decide; empty for nothing."""
    decide: str
    """Added to its newest message in a turn in which it may decide; empty for nothing."""
    accept: str | None
    """The last line of an answer that decides for 1; null for an agent that never decides."""
    reject: str | None
    """The last line of an answer that decides for 0; null for an agent that never decides."""

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield each text with placeholders, by its key."""
        for key in ("system", "question", "heard", "speak", "decide"):
            yield key, getattr(self, key)


@dataclass(frozen=True)
class Heard:
    """A message that an agent has read, or said itself."""

    speaker: str
    channel: str
    text: str
    is_own: bool


class PromptBook:
    """The prompts of every agent of a protocol."""

    def __init__(
        self,
        prompts: Mapping[str, PromptConfig],
        handler: ProtocolHandler,
        columns: Collection[str],
        *,
        source: str,
    ) -> None:
        self._prompts, self._handler = prompts, handler
        problems = [*_problems(prompts, handler, columns)]
        if problems:
            raise ConfigError("\n".join(f"{source}: {problem}" for problem in problems))

    def __getitem__(self, agent: str) -> PromptConfig:
        return self._prompts[agent]

    def decision_words(self, agent: str) -> dict[int, str]:
        """Return the line that means each decision of this agent."""
        own = self._prompts[agent]
        found = {0: own.reject, 1: own.accept}
        return {decision: word for decision, word in found.items() if word is not None}

    def messages(
        self,
        agent: str,
        row: Mapping[str, str],
        past: Sequence[Sequence[Heard]],
        *,
        round_index: int,
        may_decide: bool,
    ) -> tuple[ChatMessage, ...]:
        """Return the conversation that an agent should continue; `past` is what it has read, by round."""
        own = self._prompts[agent]
        known = {**row, **self._known(agent, round_index)}
        found: list[ChatMessage] = []
        if own.system:
            found.append(ChatMessage("system", _filled(own.system, known)))
        waiting = [_filled(own.question, known)]
        for heard in past:
            said = [one.text for one in heard if one.is_own]
            if said:
                found += [ChatMessage("user", _joined(waiting)), ChatMessage("assistant", said[0])]
                waiting = []
            waiting += [
                _filled(own.heard, {**known, **_of(one)}) for one in heard if not one.is_own
            ]
        waiting.append(_filled(own.decide if may_decide else own.speak, known))
        return (*found, ChatMessage("user", _joined(waiting)))

    def _known(self, agent: str, round_index: int) -> dict[str, str]:
        goal = self._handler.prover_goals.get(agent)
        words = {} if goal is None else self.decision_words(self._handler.verifier_names[0])
        return {
            "agent": agent,
            "goal": ""
            if goal is None
            else words.get(goal, "accept" if goal == ACCEPT else "reject"),
            "round": str(round_index + 1),
            "rounds": str(self._handler.max_message_rounds),
        }


def _of(one: Heard) -> dict[str, str]:
    return {"speaker": one.speaker, "channel": one.channel, "text": one.text}


def _filled(text: str, known: Mapping[str, str]) -> str:
    return Template(text).safe_substitute(known).strip("\n")


def _joined(texts: Sequence[str]) -> str:
    return "\n".join(text for text in texts if text)


def _problems(
    prompts: Mapping[str, PromptConfig], handler: ProtocolHandler, columns: Collection[str]
) -> Iterator[str]:
    for name in prompts:
        if name not in handler.agent_names:
            yield f"'{name}' is no agent of the protocol.{nearest(name, handler.agent_names)}"
    for name in handler.agent_names:
        if name not in prompts:
            yield f"'{name}', an agent of the protocol, has no prompts; add its section"
    for name, own in prompts.items():
        if name in handler.verifier_names and (own.accept is None or own.reject is None):
            yield f"'{name}' decides, so 'accept' and 'reject' are its words for that; give both"
        if own.accept is not None and own.reject is not None and _same(own.accept, own.reject):
            yield f"'{name}.accept' and '{name}.reject' are the same words; give two"
        for key, text in own.texts():
            known = [*_ALWAYS, *columns, *(_OF_A_MESSAGE if key == "heard" else ())]
            template = Template(text)
            if not template.is_valid():
                yield f"'{name}.{key}' has a $ that begins no ${{name}}; write $$ for the sign itself"
                continue
            for used in template.get_identifiers():
                if used not in known:
                    yield f"'{name}.{key}' uses ${{{used}}}, which there is not.{nearest(used, known)}"


def _same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


def prompt_file(scenario: str, protocol: str) -> Path:
    """Return the shipped file for a scenario and a protocol; raise ConfigError if there is none."""
    for path in (SHIPPED / scenario / f"{protocol}.yaml", SHIPPED / f"{protocol}.yaml"):
        if path.is_file():
            return path
    raise ConfigError(
        f"there are no prompts for the scenario {scenario} under the protocol {protocol}; write a file"
        " of them and name it in 'prompts'"
    )


def read_prompts(
    path: str | Path, handler: ProtocolHandler, columns: Collection[str]
) -> PromptBook:
    """Return the prompts in a file; raise ConfigError for each mistake in it."""
    source = str(path)
    try:
        data: Any = strict_yaml.parse(Path(path).read_bytes(), source=source)
    except OSError as error:
        raise ConfigError(
            f"'prompts' names {source}, which cannot be read: {error.strerror}"
        ) from None
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{source}: expected a section for each agent, such as verifier")
    prompts = {
        str(name): validate(PromptConfig, section, source=f"{source}, '{name}'")
        for name, section in data.items()
    }
    return PromptBook(prompts, handler, columns, source=source)
