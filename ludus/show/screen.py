"""Messages of a run: in its display while that is open, in plain lines before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ludus.show.base import Display
from ludus.show.wording import Value, figures

_LONGEST_TEXT = 60


class Logged(Protocol):
    """The part of a log record that the screen shows."""

    @property
    def counters(self) -> Mapping[str, int]: ...
    @property
    def scalars(self) -> Mapping[str, float]: ...
    @property
    def texts(self) -> Mapping[str, Sequence[str]]: ...


class Screen:
    """Holds a run's display, which is open between the run's first and its last hook.

    It is also a back end of the log.
    """

    def __init__(self) -> None:
        self._display: Display | None = None
        self._is_shown = False
        self._unsaid: list[str] = []

    def set(self, display: Display) -> None:
        """Set the display to open later."""
        self._display = display

    def say(self, text: str) -> None:
        """Show one line; messages before the display opens wait for it."""
        if self._display is None or not self._is_shown:
            self._unsaid.append(text)
        else:
            self._display.message(text)

    def show(self) -> None:
        """Open the display and show the messages that waited."""
        assert self._display is not None
        self._display.open()
        self._is_shown = True
        self._say_the_unsaid()

    def hide(self) -> None:
        """Close the display; later messages are printed as they come."""
        if self._display is None:
            return
        self._display.close()
        self._is_shown = True
        self._say_the_unsaid()

    def _say_the_unsaid(self) -> None:
        unsaid, self._unsaid = self._unsaid, []
        for text in unsaid:
            self.say(text)

    def write(self, record: Logged) -> None:
        """Show a record of the log; after the display has closed, as a line."""
        assert self._display is not None
        found: dict[str, Value] = {**_short(record.texts), **record.scalars}
        if self._display.is_open or self._display.outlives_its_close:
            self._display.show(found, record.counters)
        else:
            self.say(", ".join(figures(found)))

    def close(self) -> None:
        """Do nothing: the session closes the display."""


def _short(texts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the texts that fit in a line, such as the name of the tested model."""
    single = {name: said[0] for name, said in texts.items() if len(said) == 1}
    return {
        k: said for k, said in single.items() if len(said) <= _LONGEST_TEXT and "\n" not in said
    }
