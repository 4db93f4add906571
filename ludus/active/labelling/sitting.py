"""A labelling session, in which a person answers the open queries of a run."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path

from ludus.active.labelling.answering import Words, has_new_answers, read_answers
from ludus.active.labelling.queries import Queries, as_csv, read_queries, shown
from ludus.active.oracle import JOURNAL, Answers, Labels
from ludus.core.errors import LudusError, RunError
from ludus.show.terminal import clean, say
from ludus.store.directory import found_run, last_ending, read_note, way_to_resume
from ludus.store.journal import Journal
from ludus.store.storage import Storage


class Labelling:
    """Locks the run while a person labels, so that it cannot resume; each answer is stored at once."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._storage = _found(place)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Labelling:
        storage = self._storage
        if storage.is_locked():
            raise RunError(
                f"{self._place} is running; its queries are open once it waits for labels, so try again then"
            )
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(storage.lock())
            storage.check_owned = lock.check
            stack.callback(storage.close)
            self.queries, self._answers = _opened(storage)
            # An error up to here releases the run again.
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @staticmethod
    def exported(place: str) -> tuple[str, int]:
        """Return the open queries of a run as CSV, and their number."""
        queries, answers = _opened(_found(place))
        rows = _open_rows(queries, answers)
        return as_csv(queries, rows), len(rows)

    @staticmethod
    def check_taken(place: str, path: Path) -> None:
        """Raise LudusError if this file holds answers that the run does not have yet."""
        queries, answers = _opened(_found(place))
        if has_new_answers(path, queries, answers.known()):
            raise LudusError(
                f"{path} holds answers that the run does not have yet; hand them in with ludus label"
                f" {shlex.quote(place)} --csv {shlex.quote(str(path))}, or export to another name"
            )

    def take_file(self, path: Path) -> None:
        """Store all answers of a CSV file, or none of them."""
        found, num_blank = read_answers(path, self.queries, self._answers.known())
        if found:
            self._answers.put(list(found), list(found.values()))
        blank = f"; {num_blank} rows have no label yet" if num_blank else ""
        say(f"{len(found)} answers were kept{blank}")

    def ask(self) -> None:
        """Show each open query and store the answer, until all are answered or the person leaves."""
        queries, words = self.queries, Words(self.queries)
        rows = _open_rows(queries, self._answers)
        if rows:
            _introduce(queries, len(rows))
        place = 0
        while place < len(rows):
            row = rows[place]
            _show(queries, row, f"row {row}, {place + 1} of {len(rows)}")
            word = _typed(words.valid_answers())
            if word is not None and words.is_name(word):
                place += self._keep(words, row, word)
            elif word is None or word in ("q", "quit"):
                return
            elif word in ("b", "back"):
                place = max(place - 1, 0)
            elif word in ("", "s", "skip"):
                place += 1
            else:
                place += self._keep(words, row, word)

    def _keep(self, words: Words, row: int, word: str) -> int:
        """Store one answer; return the number of queries to advance: 0 if it is not a valid label."""
        try:
            self._answers.put([row], [words.label(row, word)])
        except RunError:
            raise
        except LudusError as error:
            say(str(error))
            return 0
        return 1

    def report_end(self, *, is_resumed: bool) -> bool:
        """Report what is left to do; return whether the run can resume."""
        left = len(_open_rows(self.queries, self._answers))
        has_ended = (last_ending(self._storage) or {}).get("event") in ("finished", "stopped")
        if left:
            say(f"{left} of {len(self.queries.rows)} queries are still open: {self._way()}")
        elif has_ended:
            say("all queries are answered, and the run has ended: it asks for no more")
        elif not is_resumed:
            way = way_to_resume(self._place, read_note(self._storage))
            say(f"all queries are answered; to go on: {way}")
        return not left and not has_ended

    def _way(self) -> str:
        return f"ludus label {shlex.quote(self._place)}"


def _found(place: str) -> Storage:
    storage = found_run(place)
    kind = read_note(storage)["kind"]
    if not storage.names("queries"):
        raise RunError(
            f"{place} is a run of kind '{clean(kind)}' that has asked nobody; a run of kind 'active' with"
            " oracle.kind human does"
        )
    return storage


def _opened(storage: Storage) -> tuple[Queries, Answers]:
    queries = read_queries(storage)
    if queries is None:
        raise RunError(
            f"{storage.place} was killed while it wrote down what it asks; to have it rewritten:"
            f" {way_to_resume(storage.place, read_note(storage))}"
        )
    journal = Journal(storage, JOURNAL)
    return queries, Answers(lambda: journal, Labels(num_classes=queries.num_classes))


def _open_rows(queries: Queries, answers: Answers) -> list[int]:
    known = answers.known()
    return [row for row in queries.rows if row not in known]


def _introduce(queries: Queries, count: int) -> None:
    say(f"round {queries.round}: {count} open queries")
    if queries.class_names:
        named = (f"{at} {clean(name)}" for at, name in enumerate(queries.class_names))
        say(f"classes: {', '.join(named)}")
    say("s skips, b goes back, q leaves; what was answered is kept")


def _show(queries: Queries, row: int, heading: str) -> None:
    say("")
    say(heading)
    if text := shown(queries, queries.rows.index(row)):
        say(text)


def _typed(prompt: str) -> str | None:
    """Return the typed line, or None at the end of the input."""
    if sys.stdin.isatty():
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            return input(f"{clean(prompt)}: ").strip()
        say("")
        return None
    line = sys.stdin.readline()
    return line.strip() if line else None
