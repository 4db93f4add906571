"""Entry point of the `ludus` command: from the start a Ctrl-C prints one line, never a traceback."""

import os
import signal
from types import FrameType

_MESSAGE = b"\nludus: stopped at once; a run can be resumed from its last checkpoint\n"


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt if the command can handle it; else print a line here, and exit.

    An interrupted import leaves modules half initialised, and some libraries then fail in other ways.
    """
    families = set()
    while frame is not None:
        families.add(frame.f_globals.get("__name__"))
        frame = frame.f_back
    if "ludus.cli.app" in families and "importlib._bootstrap" not in families:
        raise KeyboardInterrupt
    try:
        os.write(2, _MESSAGE)
    finally:
        os._exit(128 + number)


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from ludus.cli.commands import main as run

    run()
