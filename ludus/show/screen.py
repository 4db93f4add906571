"""What a run says on the screen: in its display while that is open, in plain lines before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ludus.show.base import Display
from ludus.show.wording import Value, figures

_LONGEST_TEXT = 60


class Logged(Protocol):
    """What the screen shows of a record of the log."""

    @property
    def counters(self) -> Mapping[str, int]: ...
    @property
    def scalars(self) -> Mapping[str, float]: ...
    @property
    def texts(self) -> Mapping[str, Sequence[str]]: ...


class Screen:
    """Holds a run's display, shown between the run's first and its last hook.

    It is also a back end of the log.
    """

    def __init__(self) -> None:
        self._display: Display | None = None
        self._is_shown = False
        self._unsaid: list[str] = []

    def set(self, display: Display) -> None:
        """Show the run in this display, once it is time."""
        self._display = display

    def say(self, text: str) -> None:
        """Show one line; what is said before the run is shown waits until then."""
        if self._display is None or not self._is_shown:
            self._unsaid.append(text)
        else:
            self._display.message(text)

    def show(self) -> None:
        """Open the display and say what has waited."""
        assert self._display is not None
        self._display.open()
        self._is_shown = True
        self._say_the_unsaid()

    def hide(self) -> None:
        """Close the display; what comes later is printed as it comes."""
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
        """Show what the log wrote; after the display has closed, as a line."""
        assert self._display is not None
        found: dict[str, Value] = {**_short(record.texts), **record.scalars}
        if self._display.is_open or self._display.outlives_its_close:
            self._display.show(found, record.counters)
        else:
            self.say("  ".join(figures(found)))

    def close(self) -> None:
        """The session closes the display itself."""


def _short(texts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the texts that fit in a line: they name something, such as the model that was tested."""
    single = {name: said[0] for name, said in texts.items() if len(said) == 1}
    return {
        k: said for k, said in single.items() if len(said) <= _LONGEST_TEXT and "\n" not in said
    }
