"""Transcripts of rollouts: a file of lines for each split, and a page to read for each iteration.

Shapes: B episodes, T rounds, A agents, C channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ludus.arena.protocol import ACCEPT, CONTINUE, REJECT, ProtocolHandler
from ludus.core.services import Files
from ludus.show.transcripts.page import transcripts_page
from ludus.show.transcripts.transcript import from_lines, to_lines
from ludus.store.places import parted
from ludus.text.nested import NestedArrayDict
from ludus.text.nested.paths import Key, as_key
from ludus.text.rollouts.transcript import Transcript, TurnText
from ludus.text.scenario import TextDataset

FOLDER = "transcripts"
_LIMIT = 1 << 32
_DECISIONS = {ACCEPT: "accept", REJECT: "reject"}
_OF_AGENTS = ("active", "decision", "malformed", "text", "tokens", "truncated")
_READ: tuple[Key, ...] = (
    *("index", "y", "seed", "mask", "verdict", "message"),
    *(("agents", name) for name in _OF_AGENTS),
)

_Lists: TypeAlias = dict[Key, list[Any]]
"""The leaves of one episode as lists, by their keys."""


def write_transcripts(
    files: Files | None,
    rollouts: NestedArrayDict,
    dataset: TextDataset,
    handler: ProtocolHandler,
    *,
    split: str,
    iteration: int,
) -> None:
    """Write the transcripts of a split of an iteration, and the page of the iteration.

    Training and test episodes of an iteration are on one page; other splits have their own. A run that is
    kept in memory has no files, and no transcripts.
    """
    if files is None:
        return
    transcripts = transcripts_of(rollouts, dataset, handler, split=split, iteration=iteration)
    files.write(_lines_name(split, iteration), to_lines(transcripts))
    earlier = _lines_name("train", iteration)
    # Training episodes are written before the tests of their iteration.
    if split == "test" and files.exists(earlier):
        data = files.read(earlier, limit=_LIMIT)
        transcripts = [*from_lines(data, source=earlier), *transcripts]
    about = f"iteration {iteration}"
    about = about if split in ("train", "test") else f"{about} · {split}"
    page = transcripts_page(transcripts, title=parted(files.place)[1], about=about)
    files.write(page_name(split, iteration), page.encode(errors="replace"))


def page_name(split: str, iteration: int) -> str:
    """Return the name of the page, in the directory of a run, that shows a split of an iteration."""
    name = "iteration" if split in ("train", "test") else split
    return f"{FOLDER}/{name}-{iteration}.html"


def _lines_name(split: str, iteration: int) -> str:
    return f"{FOLDER}/{split}-{iteration}.jsonl"


def transcripts_of(
    rollouts: NestedArrayDict,
    dataset: TextDataset,
    handler: ProtocolHandler,
    *,
    split: str,
    iteration: int,
) -> list[Transcript]:
    """Return the transcript of each episode of (B, T) rounds."""
    leaves = {as_key(path): leaf.tolist() for path, leaf in rollouts.select(*_READ).leaves()}
    rewards_BA = rollouts["agents", "reward"].sum(1).tolist()
    found = []
    for b, rewards_A in enumerate(rewards_BA):
        episode: _Lists = {key: rows[b] for key, rows in leaves.items()}
        index, y = episode["index"][0], episode["y"][0]
        verdicts = [
            one
            for one, is_played in zip(episode["verdict"], episode["mask"], strict=True)
            if is_played
        ]
        verdict = verdicts[-1] if verdicts else CONTINUE
        outcome = "undecided" if verdict == CONTINUE else "right" if verdict == y else "wrong"
        variant = episode["seed"][0] % handler.num_variants
        found.append(
            Transcript(
                index=index,
                question=_question(dataset, index),
                y=y,
                turns=tuple(_turns(episode, handler, variant)),
                rewards=dict(zip(handler.agent_names, rewards_A, strict=True)),
                verdict=_DECISIONS.get(verdict),
                outcome=outcome if handler.is_judged(variant) else None,
                iteration=iteration,
                split=split,
            )
        )
    return found


def _question(dataset: TextDataset, index: int) -> str:
    """Return the columns of a question; a single one without its name."""
    row = dataset.row(index)
    if len(row) == 1:
        return next(iter(row.values()))
    return "\n".join(f"{name}: {text}" for name, text in row.items())


def _turns(episode: _Lists, handler: ProtocolHandler, variant: int) -> Iterator[TurnText]:
    channels = handler.message_channel_names
    for t in range(sum(episode["mask"])):
        for agent, spoken_in in handler.turn(t, variant).items():
            a = handler.agent_names.index(agent)
            if not episode["agents", "active"][t][a]:
                continue
            said = [(one, episode["message"][t][channels.index(one)]) for one in spoken_in]
            # With one channel or none the answer is shown as it is, with the line that decides.
            if len(said) < 2 or not any(text for _, text in said):
                said = [(said[0][0] if len(said) == 1 else "", episode["agents", "text"][t][a])]
            for number, (channel, text) in enumerate(said):
                is_last = number == len(said) - 1
                yield TurnText(
                    round=t + 1,
                    agent=agent,
                    channel=channel if channel and len(channels) > 1 else None,
                    text=text,
                    decision=_DECISIONS.get(episode["agents", "decision"][t][a])
                    if is_last
                    else None,
                    tokens=episode["agents", "tokens"][t][a] if is_last else 0,
                    is_truncated=is_last and episode["agents", "truncated"][t][a],
                    is_malformed=is_last and episode["agents", "malformed"][t][a],
                )
