"""Main program of a child process: answers the requests in its pipe until the pipe closes."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ludus.core.errors import LudusError
from ludus.process import talk
from ludus.process.frames import Frames, Message, Piece

Answer = tuple[dict[str, Any], Sequence[Piece]]
Handler = Callable[[dict[str, Any], list[bytearray]], Answer | None]
"""Takes a request's header and pieces; returns those of the answer, or None for an empty one."""

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Set up this process as the parent asks, then serve the handlers of the module it names."""
    module, reader, writer, parent, outlives = arguments[0], *map(int, arguments[1:])
    # Terminals and batch systems signal every process; the parent saves and closes this one.
    ignored = [signal.SIGINT, signal.SIGHUP]
    if not outlives:
        _die_with(parent)
        ignored.append(signal.SIGTERM)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    for fd in (reader, writer):
        os.set_inheritable(fd, False)
    frames = Frames(reader, writer)
    talk.begin(frames)
    with contextlib.suppress(EOFError):
        serve(frames, _prepared(module, frames.receive()))
        return
    if outlives:
        _stay()


def _stay() -> None:
    """Keep the threads of a server running when the parent is gone, until a SIGTERM."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    while True:
        signal.pause()


def serve(frames: Frames, handlers: Mapping[str, Handler]) -> None:
    """Answer requests in order until the parent sends `end` or is gone.

    An error in a handler is sent as the answer; the next request is served as usual.
    """
    while True:
        header, pieces = frames.receive()
        name = header.get("do", "")
        if name == "end":
            if "end" in handlers:
                handlers["end"](header, pieces)
            return
        try:
            answer = handlers[name](header, pieces) or ({}, ())
        except BaseException as error:
            answer = _described(error), ()
        frames.send(*answer)


def _described(error: BaseException) -> dict[str, Any]:
    kind = type(error).__name__
    message = str(error) if isinstance(error, LudusError) else f"{kind}: {error}"
    return {"error": {"type": kind, "message": message[:4000]}}


def _prepared(module: str, greeting: Message) -> Mapping[str, Handler]:
    """Return the module's handlers; if they cannot be imported, ones that answer with the error."""
    header, _ = greeting
    sys.path[:] = header["path"]
    # It was set only to start this process, and must not reach its own children.
    os.environ.pop("PYTHONPATH", None)
    if header["python_path"] is not None:
        os.environ["PYTHONPATH"] = header["python_path"]
    try:
        found: Mapping[str, Handler] = importlib.import_module(module).handlers()
        _load_plugins(header["plugins"])
    except Exception as error:
        return _Excuse(error)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        torch.set_deterministic_debug_mode(header["deterministic"])
    return found


def _load_plugins(plugins: Sequence[str]) -> None:
    from ludus.config.registry import load_plugin

    for plugin in plugins:
        load_plugin(plugin)


class _Excuse(dict[str, Handler]):
    """Answers every request with the error that prevented importing the real handlers."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def __missing__(self, name: str) -> Handler:
        raise self._error


def _die_with(parent: int) -> None:
    """Ask the system to kill this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
