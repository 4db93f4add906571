"""Transcript of one episode: the question, what each agent said, the decisions and the rewards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ludus.core.errors import CheckpointError, LudusError
from ludus.store.strict_json import one_line, parse_json

_MOST_DIGITS = 40


@dataclass(frozen=True)
class TurnText:
    """One message of one agent."""

    round: int
    """The round, from 1."""
    agent: str
    channel: str | None
    """The channel it was said in; None where there is only one, or none."""
    text: str
    decision: str | None = None
    """The agent's decision in words, None where it made none."""
    tokens: int = 0
    """The tokens that were sampled for it; 0 where they are not counted."""
    is_truncated: bool = False
    """Whether it was cut off by the limit of tokens."""
    is_malformed: bool = False
    """Whether it could not be read as an answer."""


@dataclass(frozen=True)
class Transcript:
    """One episode."""

    index: int
    """The question's place in its dataset, or the number of the episode."""
    question: str
    y: int | None
    """The label of the question, None where it has none."""
    turns: tuple[TurnText, ...]
    rewards: Mapping[str, float]
    """The sum of the rewards of each agent."""
    verdict: str | None
    """The decision that the episode ended with, in words; None for none."""
    outcome: str | None
    """A word for how it ended, such as right, wrong or undecided."""
    iteration: int = 0
    split: str = "train"
    """Train, test or another set of questions."""
    notes: tuple[str, ...] = field(default=())
    """Further lines, shown below the turns."""


def to_lines(transcripts: Iterable[Transcript]) -> bytes:
    """Return transcripts as JSON, a line each."""
    return "".join(one_line(_as_json(one)) + "\n" for one in transcripts).encode()


def from_lines(data: bytes, *, source: str) -> Iterator[Transcript]:
    """Yield the transcripts that `to_lines` wrote; raise LudusError, naming the line, for another."""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield _from_json(parse_json(line, source=f"line {number}"))
        except (KeyError, TypeError, ValueError, AttributeError, CheckpointError) as error:
            raise LudusError(
                f"{source}, line {number}, is not a transcript: {type(error).__name__}: {error}"
            ) from None


def _as_json(one: Transcript) -> dict[str, object]:
    turns = [vars(turn) for turn in one.turns]
    rewards = {agent: float(reward) for agent, reward in one.rewards.items()}
    return {**vars(one), "turns": turns, "rewards": rewards}


def _from_json(found: dict[str, object]) -> Transcript:
    turns, rewards, notes = found["turns"], found["rewards"], found["notes"]
    if not isinstance(turns, list) or not isinstance(rewards, dict) or not isinstance(notes, list):
        raise TypeError("turns and notes are lists, rewards a mapping")
    return Transcript(
        index=_whole(found["index"]),
        question=_text(found["question"]),
        y=None if found["y"] is None else _whole(found["y"]),
        turns=tuple(map(_turn, turns)),
        rewards={agent: _number(reward) for agent, reward in rewards.items()},
        verdict=_word(found["verdict"]),
        outcome=_word(found["outcome"]),
        iteration=_whole(found["iteration"]),
        split=_text(found["split"]),
        notes=tuple(map(_text, notes)),
    )


def _turn(found: Mapping[str, object]) -> TurnText:
    return TurnText(
        round=_whole(found["round"]),
        agent=_text(found["agent"]),
        channel=_word(found["channel"]),
        text=_text(found["text"]),
        decision=_word(found["decision"]),
        tokens=_whole(found["tokens"]),
        is_truncated=found["is_truncated"] is True,
        is_malformed=found["is_malformed"] is True,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} stands in the place of a text")
    return value


def _word(value: object) -> str | None:
    return None if value is None else _text(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a {type(value).__name__} stands in the place of a whole number")
    return value


def _number(value: object) -> float:
    # NaN and infinity are written as text, because JSON has no number for them.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"a {type(value).__name__} stands in the place of a number")
    return float(value if not isinstance(value, str) else value[:_MOST_DIGITS])
