"""The start of the `ludus` command: from its first moment a Ctrl-C is one line, never a traceback."""

import os
import signal
from types import FrameType

_TOLD = b"\nludus: stopped at once; a run can be resumed from its last checkpoint\n"


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt where the command can tell of it; else tell it here, and end.

    An import that is interrupted leaves modules half made, and some libraries then fail in other ways.
    """
    families = set()
    while frame is not None:
        families.add(frame.f_globals.get("__name__"))
        frame = frame.f_back
    if "ludus.cli.app" in families and "importlib._bootstrap" not in families:
        raise KeyboardInterrupt
    try:
        os.write(2, _TOLD)
    finally:
        os._exit(128 + number)


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from ludus.cli.commands import main as run

    run()
