"""Redraw a few lines at the bottom of a terminal, without ever disturbing the run."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

_REDRAWS_PER_SECOND = 4.0


class SteadyLive(Live):
    """A rich Live that stops drawing at the first failure, instead of raising it in the run."""

    def __init__(self, console: Console, render: Callable[[], RenderableType]) -> None:
        self.failure: BaseException | None = None
        # A redirected stream, such as a pipe for JSON, is left alone.
        super().__init__(
            console=console,
            get_renderable=render,
            refresh_per_second=_REDRAWS_PER_SECOND,
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=is_terminal(sys.stderr),
        )

    def attempt(self, action: Callable[[], None]) -> None:
        """Call it, unless something failed before."""
        if self.failure is None:
            try:
                action()
            # rich raises SystemExit when the reader of its output is gone.
            except (Exception, SystemExit) as error:
                self.failure = error

    def refresh(self) -> None:
        """Redraw."""
        self.attempt(super().refresh)

    def let_go(self) -> None:
        """Restore the streams without drawing."""
        self._disable_redirect_io()


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal."""
    # Not rich's own test: FORCE_COLOR makes that true for the pipe of a CI job.
    return bool(getattr(stream, "isatty", bool)())


def in_notebook() -> bool:
    """Return whether this process runs the cells of a notebook, which can show HTML."""
    # Not imported here: where it is not imported already, no notebook is running.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
