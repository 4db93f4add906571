"""The journal of answers: one file an iteration, group commit, and an index of what each iteration holds.

journals/answers.jsonl              the index: for each iteration its number of answers and what was spent
journals/answers-<iteration>.jsonl  a line when a request is sent, and one when it is answered

A line is in the file at once, so that it survives the end of the process; 32 answers, or those of 80 ms,
share the fsync that makes them survive the end of the machine. An answer that is lost is asked for again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ludus.core.errors import StorageError
from ludus.core.services import JournalProtocol
from ludus.text.chat import ChatAnswer
from ludus.text.client.spending import Amount, Payer, Spent, read_rows, rows_of

INDEX = "answers"
_GROUP = 32
_DELAY_SECONDS = 0.08
# An answer longer than this, as JSON, is kept in several records: a journal's line is bounded.
_MOST_TEXT = 200_000


@dataclass(frozen=True)
class AnswerRecord:
    """How far a request has come: sent, answered, or given up."""

    digest: str
    payer: Payer
    open: Amount | None
    """The most it may cost, while it is on its way."""
    spent: Spent
    """What its answer and its lost tries cost."""
    answer: ChatAnswer | None = None

    def closed(self) -> Spent:
        """Return what was spent if no answer comes any more."""
        found = self.spent.copy()
        if self.open is not None:
            lost = Spent(lost_requests=1, lost_tokens=self.open.tokens, lost_cost=self.open.cost)
            found.add(lost)
        return found


@dataclass
class Iteration:
    """What the journal holds of one iteration."""

    number: int
    num_answers: int = 0
    spent: dict[Payer, Spent] = field(default_factory=dict)


class AnswerJournal:
    """Answers by key, of one iteration at a time."""

    def __init__(self, journal: Callable[[str], JournalProtocol]) -> None:
        """`journal` opens the journal of a name, as `run.journal` does."""
        self._open = journal
        self._index = journal(INDEX)
        self._journal: JournalProtocol | None = None
        self.iteration = -1
        """The iteration that has begun; -1: none."""
        self._records: dict[str, AnswerRecord] = {}
        self._num_waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    def begin(self, iteration: int) -> Iteration:
        """Seal the iteration before, open the file of this one, and return what it already holds."""
        if iteration == self.iteration:
            return self._summary()
        self.seal()
        name = _name(iteration)
        if self._index.get(name) is None:
            # Before anything is spent, so that it is found after a kill.
            self._index.put(name, {"state": "begun"})
        self._journal, self.iteration = self._open(name), iteration
        self._records = dict(_records(self._journal, name))
        return self._summary()

    def seal(self) -> None:
        """Make the current iteration durable, note its sums in the index, and free its memory."""
        if self._journal is None:
            return
        self._cancel_timer()
        summary, name = self._summary(), _name(self.iteration)
        self._journal.release()
        record = {
            "state": "sealed",
            "answers": summary.num_answers,
            "spent": rows_of(summary.spent),
        }
        if self._index.get(name) != json.loads(json.dumps(record)):
            self._index.put(name, record)
        self._journal, self.iteration, self._records = None, -1, {}

    def iterations(self) -> Iterator[Iteration]:
        """Yield what each iteration holds, from the index; only one that was not sealed is read whole."""
        for name in self._index.keys():  # noqa: SIM118 - a journal is no mapping
            number = _number(name)
            record = self._index.get(name) or {}
            if number == self.iteration:
                yield self._summary()
            elif record.get("state") == "sealed":
                spent = dict(read_rows(record.get("spent")))
                yield Iteration(number, int(record.get("answers", 0)), spent)
            else:
                journal = self._open(name)
                yield _summed(number, dict(_records(journal, name)))
                journal.release()

    def find(self, key: str) -> AnswerRecord | None:
        """Return how far the request of this key has come."""
        return self._records.get(key)

    def put(self, key: str, record: AnswerRecord) -> None:
        """Write down how far a request has come."""
        if self._journal is None:
            raise StorageError("no iteration of the answers has begun; call begin first")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        _write(self._journal, key, record)
        self._records[key] = record
        self._schedule(is_answer=record.open is None)

    def _schedule(self, *, is_answer: bool) -> None:
        self._num_waiting += is_answer
        loop = asyncio.get_running_loop()
        if self._num_waiting >= _GROUP:
            self._start_flush()
        elif self._timer is None:
            self._timer = loop.call_later(_DELAY_SECONDS, self._start_flush)

    def _start_flush(self) -> None:
        self._cancel_timer()
        if self._flushing is not None and not self._flushing.done():
            # What is on its way may not cover the newest lines, so another follows it.
            self._timer = asyncio.get_running_loop().call_later(
                _DELAY_SECONDS / 4, self._start_flush
            )
            return
        self._num_waiting = 0
        self._flushing = asyncio.create_task(self._flush_in_background())

    async def _flush_in_background(self) -> None:
        try:
            if self._journal is not None:
                await asyncio.to_thread(self._journal.flush)
        except (StorageError, OSError) as error:
            # The next answer, or the end of the stage, raises it.
            self._failure = error

    async def flush(self) -> None:
        """Make everything durable; raise what kept an earlier group from being so."""
        self._cancel_timer()
        if self._flushing is not None:
            await self._flushing
        if self._journal is not None:
            self._num_waiting = 0
            await asyncio.to_thread(self._journal.flush)
            self._failure = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _summary(self) -> Iteration:
        return _summed(self.iteration, self._records)


def _name(iteration: int) -> str:
    return f"{INDEX}-{iteration:06d}"


def _number(name: str) -> int:
    number = name.removeprefix(f"{INDEX}-")
    if not number.isdecimal():
        raise StorageError(f"{name!r} in journals/{INDEX}.jsonl is no iteration; delete its line")
    return int(number)


def _summed(number: int, records: dict[str, AnswerRecord]) -> Iteration:
    found = Iteration(number)
    for record in records.values():
        found.num_answers += record.answer is not None
        found.spent.setdefault(record.payer, Spent()).add(record.closed())
    return found


def _write(journal: JournalProtocol, key: str, record: AnswerRecord) -> None:
    import orjson

    line: dict[str, Any] = {"digest": record.digest, "by": list(record.payer)}
    if record.spent:
        line["spent"] = record.spent.to_json()
    if record.open is not None:
        line["open"] = list(record.open)
    if record.answer is not None:
        line["answer"] = record.answer
    # It knows dataclasses; a token and its log-probability are a tuple with a class of its own.
    text = orjson.dumps(line, default=list).decode()
    if len(text) > _MOST_TEXT and record.answer is not None:
        whole = json.dumps(record.answer.to_json())
        parts = [whole[at : at + _MOST_TEXT] for at in range(0, len(whole), _MOST_TEXT)]
        for number, part in enumerate(parts):
            journal.add(f"{number}#{key}", {"part": part})
        text = orjson.dumps({**line, "answer": len(parts)}).decode()
    journal.add(f":{key}", text)


def _records(journal: JournalProtocol, name: str) -> Iterator[tuple[str, AnswerRecord]]:
    for key in journal.keys():  # noqa: SIM118
        if key.startswith(":"):
            yield key[1:], _read(journal, key, name)


def _read(journal: JournalProtocol, key: str, name: str) -> AnswerRecord:
    line = journal.get(key) or {}
    try:
        found = line.get("answer")
        if isinstance(found, int):
            parts = [journal.get(f"{number}#{key[1:]}") or {} for number in range(found)]
            found = json.loads("".join(part["part"] for part in parts))
        answer = None if found is None else ChatAnswer.from_json(found)
        opened = Amount(*line["open"]) if "open" in line else None
        spent = Spent.from_json(line["spent"]) if "spent" in line else Spent()
        payer = Payer(*line["by"])
        return AnswerRecord(str(line["digest"]), payer, opened, spent, answer)
    except (KeyError, TypeError, ValueError, StorageError) as error:
        # Skipping it could mean that an answer is paid for twice.
        raise StorageError(
            f"the record {key!r} in journals/{name}.jsonl is damaged ({error}); mend it by hand, or delete"
            " its line, and it is asked for again"
        ) from None
