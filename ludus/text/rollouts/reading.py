"""Reading an answer: the message for each channel, and the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ludus.arena.protocol import CONTINUE


class AnswerReading(NamedTuple):
    """What an agent has said in a turn."""

    messages: Mapping[str, str]
    """By channel."""
    decision: int
    """REJECT, ACCEPT, or CONTINUE where it made none."""
    is_well_formed: bool
    """False for an answer without a message, or without a decision where there must be one."""


def read_answer(
    text: str,
    *,
    channels: Sequence[str],
    words: Mapping[int, str],
    may_decide: bool,
    must_decide: bool,
) -> AnswerReading:
    """Return what an answer says; `words` are the last line that means each decision.

    A decision is the last line alone, whatever its case and the full stop after it. An agent that speaks in
    several channels names each at the beginning of a line, `channel: ...`; without that all get the text.
    """
    said = text.strip()
    decision = _decided(said, words) if may_decide else CONTINUE
    messages = _by_channel(said, channels)
    has_said = bool(said) or not channels
    is_well_formed = has_said and not (must_decide and decision == CONTINUE)
    return AnswerReading(messages, decision, is_well_formed)


def _decided(said: str, words: Mapping[int, str]) -> int:
    last = said.rpartition("\n")[2].strip().rstrip(".!").casefold()
    for decision, word in words.items():
        if last == word.strip().rstrip(".!").casefold():
            return decision
    return CONTINUE


def _by_channel(said: str, channels: Sequence[str]) -> dict[str, str]:
    if len(channels) < 2:
        return dict.fromkeys(channels, said)
    found: dict[str, list[str]] = {}
    current: str | None = None
    for line in said.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() in channels:
            current, line = name.strip(), rest.strip()
        if current is not None:
            found.setdefault(current, []).append(line)
    if not found:
        return dict.fromkeys(channels, said)
    return {channel: "\n".join(found.get(channel, [])).strip() for channel in channels}
