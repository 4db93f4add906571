"""Sender: passes the lines of a log to a service in a background thread, each once."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from typing import Protocol

from ludus.core.errors import LudusError
from ludus.session.backend import Event
from ludus.session.record import Record
from ludus.session.remote.log_line import LogLine
from ludus.session.remote.logged_run import LoggedEnd, logged_end
from ludus.session.remote.unsent import UnsentLines
from ludus.store.storage import Storage

MAX_LINES = 100
"""Most lines in one call of `send`."""
SECONDS_BETWEEN_SENDS = 1.0
SECONDS_BETWEEN_TRIES = 10.0
_SECRETS = ("KEY", "TOKEN", "PASSWORD", "SECRET")
_MAX_REASON = 300


class Unreachable(Exception):
    """A service does not answer; it may do so later."""


class Refused(LudusError):
    """A service answers, and will not take this run."""


class Service(Protocol):
    """A service that takes the lines of one run; all its methods are called in one thread.

    Each raises Unreachable if there is no answer, and Refused if the answer is no.
    """

    label: str
    """Name of the service in messages."""

    def connect(self) -> int:
        """Find the run there, or create it, and return the number of the last line it has.

        Called again after a failure: what was sent before it may have arrived or not.
        """

    def send(self, lines: Sequence[LogLine]) -> None:
        """Send lines, all of them or none."""

    def finish(self, end: LoggedEnd) -> None:
        """Record how the run ended, and send its best model if it changed."""

    def notes(self) -> list[str]:
        """Return what the user should know, a sentence each, and forget it."""


class Sender:
    """Sends every line of metrics.jsonl to a service, those of earlier processes included.

    What has been sent is asked of the service, and what has not is in metrics.jsonl, so a kill at any
    moment neither loses a line nor sends one twice. If the service does not answer, training goes on.
    """

    def __init__(
        self, service: Service, storage: Storage, *, counter_names: Collection[str], wait: float
    ) -> None:
        """`wait` is how many seconds the beginning and the end of a run may wait for the service."""
        self._service, self._storage, self._wait = service, storage, wait
        self._unsent = UnsentLines(storage, counter_names=counter_names)
        self._position = 0
        self._news = threading.Condition()
        self._messages: list[tuple[str, str]] = []
        self._end: LoggedEnd | None = None
        self._is_abandoned = self._is_connected = self._is_down = False
        self._is_decided = threading.Event()
        """Set once the first attempt to connect has succeeded or failed."""
        self._is_waited_for = True
        self._refusal: LudusError | None = None
        self._tell: Event | None = None
        name = f"ludus-log-{service.label.partition(' ')[0]}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self, tell: Event) -> None:
        """Connect; raise LudusError if the service refuses this run."""
        self._tell = tell
        self._thread.start()
        self._is_decided.wait(self._wait)
        self._is_waited_for = False
        if self._refusal is not None:
            raise self._refusal
        self._pass_on()

    def write(self, record: Record) -> None:
        """Have a record sent that was just appended to metrics.jsonl."""
        self._unsent.add(record)
        with self._news:
            self._news.notify()
        self._pass_on()

    def close(self) -> None:
        """Send what is left and how the run ended, for as long as the end may wait."""
        if not self._thread.is_alive():
            self._pass_on()
            return
        try:
            self._storage.check_owned()
            self._end = logged_end(self._storage)
        except (LudusError, OSError):
            # The run is another process's now, which sends the rest.
            self._is_abandoned = True
        with self._news:
            self._news.notify()
        self._thread.join(0.0 if self._is_abandoned else self._wait)
        is_late = self._thread.is_alive()
        self._is_abandoned = True
        if is_late:
            self._say(
                "logger_unreachable",
                f"{self._service.label} has not taken everything in {self._wait:g} s; {self._way_to_send()}",
            )
        self._pass_on()

    def _way_to_send(self) -> str:
        return f"`ludus resume {self._storage.place}` sends the rest"

    def _say(self, event: str, text: str) -> None:
        self._messages.append((event, text))

    def _pass_on(self) -> None:
        """Tell what the thread found out; only the training thread writes events and displays them."""
        while self._messages and self._tell is not None:
            event, reason = self._messages.pop(0)
            self._tell(event, reason=reason)

    def _work(self) -> None:
        try:
            while self._work_once():
                pass
        except LudusError as error:
            self._refuse(str(error))
        except Exception as error:
            self._refuse(f"{self._service.label} failed: {type(error).__name__}: {error}")
        finally:
            self._is_decided.set()

    def _refuse(self, text: str) -> None:
        text = without_secrets(text)
        if not self._is_waited_for:
            rest = "nothing more is sent; the log is complete in metrics.jsonl"
            self._say("logger_refused", f"{text}; {rest}")
        else:
            self._refusal = Refused(text)

    def _work_once(self) -> bool:
        """Connect or send once, and return whether there is more to do."""
        is_ending = self._end is not None
        try:
            self._connect_or_send()
            if self._end is not None and is_ending and not self._is_abandoned:
                self._service.finish(self._end)
            self._take_notes()
            is_done, pause = is_ending, SECONDS_BETWEEN_SENDS
        except Unreachable as error:
            # A connection may have been cut long ago: the end tries once to make a new one.
            is_done, pause = is_ending and not self._is_connected, SECONDS_BETWEEN_TRIES
            self._note_failure(str(error), is_last=is_done)
        if is_done or self._is_abandoned:
            return False
        with self._news:
            self._news.wait_for(self._is_over, timeout=pause)
            if self._is_connected:
                self._news.wait_for(lambda: self._is_over() or self._has_more())
        return not self._is_abandoned

    def _is_over(self) -> bool:
        return self._is_abandoned or self._end is not None

    def _has_more(self) -> bool:
        return self._position < self._unsent.num_written

    def _connect_or_send(self) -> None:
        if not self._is_connected:
            self._position = self._service.connect()
            self._is_connected = True
            self._is_decided.set()
            if self._is_down:
                self._is_down = False
                self._say("logger_back", f"{self._service.label} answers again, and gets the rest")
        while not self._is_abandoned:
            lines = self._unsent.after(self._position, MAX_LINES)
            if not lines:
                return
            self._service.send(lines)
            self._position = lines[-1].number
            if len(lines) < MAX_LINES:
                return

    def _note_failure(self, why: str, *, is_last: bool) -> None:
        self._take_notes()
        self._is_connected = False
        if not self._is_down or is_last:
            later = "training goes on, and the rest is sent when it answers"
            rest = self._way_to_send() if is_last else later
            text = f"{self._service.label} does not answer ({why}); {rest}"
            self._say("logger_unreachable", without_secrets(text))
        self._is_down = True
        self._is_decided.set()

    def _take_notes(self) -> None:
        for text in self._service.notes():
            self._say("logger", without_secrets(text))


def without_secrets(text: str) -> str:
    """Return the first line of a text, short, without the value of any variable that holds a secret."""
    found = text.partition("\n")[0]
    for name, value in os.environ.items():
        if len(value) >= 4 and any(word in name.upper() for word in _SECRETS):
            found = found.replace(value, "***")
    return found if len(found) <= _MAX_REASON else f"{found[: _MAX_REASON - 3]}..."
