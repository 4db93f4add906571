"""Display of several runs at once: a table that stays up to date on a terminal, plain lines in a pipe."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from ludus.show.terminal import clean

WIDTH = 159
"""Longest line in a pipe."""


class LiveTable:
    """Shows what `render` returns, four times a second; subclasses write it."""

    def __init__(self, console: Console, *, is_silent: bool, stays: bool = True) -> None:
        """`stays` says whether the table remains on the terminal when it is closed."""
        self.console, self._is_silent, self._stays = console, is_silent, stays
        self._live: Live | None = None

    @property
    def is_live(self) -> bool:
        """Whether a table is being shown."""
        return self._live is not None

    def start(self) -> None:
        """Start showing."""
        if self.console.is_terminal and not self._is_silent:
            self._live = Live(
                console=self.console,
                get_renderable=self.render,
                refresh_per_second=4,
                transient=not self._stays,
            )
            self._live.start()

    def close(self) -> None:
        """Stop showing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Show one line."""
        if not self._is_silent:
            self.console.print(Text(cut(clean(text))), soft_wrap=True)

    def render(self) -> RenderableType:
        """Return what is to be seen now."""
        raise NotImplementedError


def cut(line: str) -> str:
    """Return a line no longer than one in a pipe may be."""
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
