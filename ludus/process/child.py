"""Child process: a Python process driven over pipes that never outlives its use."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.config import registry
from ludus.core.errors import LudusError
from ludus.process.frames import Frames, Message, Piece
from ludus.process.standard_streams import fill_standard_streams

_TAIL_BYTES = 32_768
_TAIL_LINES = 12
_GRACE = 5.0


class ChildDied(LudusError):
    """A child process exited or was killed; `exit_code` is minus the signal number if it was a signal."""

    def __init__(self, message: str, exit_code: int | None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ChildHung(LudusError):
    """A child process did not answer in time; it has been killed."""


class ChildFailed(LudusError):
    """A request raised an error in the child process, which is still alive."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
        """Class name of the error in the child."""


class Child:
    """Runs the `handlers()` of a ludus module in another process; see `ludus.process.child_main`.

    It has the parent's import path and plugins, computes on one thread, and is as deterministic as the
    parent, unless `greeting` says otherwise. Its output is dropped, except that errors quote the last
    lines. It inherits `fds` under the same numbers. It dies with the thread that started it, so start it
    from one that lives as long. With `outlives_parent`, for a server with its own threads, only `close`,
    `kill` or a SIGTERM ends it.
    """

    def __init__(
        self,
        module: str,
        *,
        name: str,
        timeout: float = 60.0,
        fds: Sequence[int] = (),
        outlives_parent: bool = False,
        greeting: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        """Name used in messages, such as "env worker 2"."""
        self.timeout = timeout
        """Default number of seconds that an answer may take."""
        fill_standard_streams()
        # Requests to the child; answers from it; its output.
        pipes = [os.pipe() for _ in range(3)]
        (to_child, writer), (reader, from_child), (printed, print_to) = pipes
        arguments = [module, str(to_child), str(from_child), str(os.getpid())]
        arguments.append(str(int(outlives_parent)))
        try:
            # -P keeps the current directory out of the child's import path.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ludus.process.child_main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=print_to,
                stderr=print_to,
                pass_fds=(to_child, from_child, *fds),
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            for fd in (fd for pair in pipes for fd in pair):
                os.close(fd)
            raise ChildDied(f"{name} cannot be started: {error}", None) from error
        for fd in (to_child, from_child, print_to):
            os.close(fd)
        death = _open_death(self._process.pid)
        self._frames = Frames(reader, writer, death=death)
        self._tail = _Tail(printed, death)
        fds = [reader, writer, printed, *([] if death is None else [death])]
        self._end = weakref.finalize(self, _end, self._process, self._tail.thread, fds)
        if outlives_parent:
            # Neither our exit nor the garbage collector may end it.
            self._end.atexit = False
            _SERVERS.add(self)
        self.send(dict(own_greeting() if greeting is None else greeting))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """Whether it can still receive requests, as far as is known."""
        return bool(self._end.alive)

    def send(self, header: dict[str, Any], pieces: Sequence[Piece] = ()) -> None:
        """Send a request: `header["do"]` names the handler; the empty header goes to handler ""."""
        self._check_open()
        try:
            self._frames.send(header, pieces, timeout=self.timeout)
        except EOFError:
            raise self._died() from None
        except TimeoutError:
            raise self.give_up(self.timeout) from None

    def receive(self, timeout: float | None = None) -> Message:
        """Return the answer to the oldest unanswered request."""
        self._check_open()
        timeout = self.timeout if timeout is None else timeout
        try:
            header, pieces = self._frames.receive(timeout)
        except EOFError:
            raise self._died() from None
        except TimeoutError:
            raise self.give_up(timeout) from None
        if "error" in header:
            raise ChildFailed(header["error"]["message"], header["error"]["type"])
        return header, pieces

    def ask(
        self, header: dict[str, Any], pieces: Sequence[Piece] = (), *, timeout: float | None = None
    ) -> Message:
        """Send a request and return its answer."""
        self.send(header, pieces)
        return self.receive(timeout)

    def wait(self, timeout: float) -> bool:
        """Return whether `receive` would have an answer or an error within `timeout` seconds."""
        self._check_open()
        return self._frames.wait(timeout)

    def descriptors(self) -> list[int]:
        """Return the descriptors of which one is readable when `receive` has something: see `ready_among`."""
        self._check_open()
        return self._frames.readable_by

    def give_up(self, timeout: float) -> ChildHung:
        """Kill it, and return the error that it did not answer within this many seconds."""
        # The child's fault handler prints a traceback on this signal.
        _kill_group(self._process.pid, signal.SIGUSR1)
        self._tail.thread.join(0.2)
        self.kill()
        words = self._tail.words()
        return ChildHung(f"{self.name} did not answer within {timeout:g} seconds{words}")

    def kill(self) -> None:
        """Kill it at once, with every process it started."""
        self._finish()

    def close(self) -> None:
        """Let it end by itself and release its resources; kill it if that takes too long."""
        if not self._end.alive:
            return
        with contextlib.suppress(ChildDied, ChildHung):
            self.timeout = min(self.timeout, _GRACE)
            self.send({"do": "end"})
            self._frames.wait(_GRACE)
        self._finish()

    def _finish(self) -> None:
        self._end()
        _SERVERS.discard(self)

    def _check_open(self) -> None:
        if not self._end.alive:
            raise ChildDied(f"{self.name} was closed; build a new one", self._process.returncode)

    def _died(self) -> ChildDied:
        # The pipe may close a moment before the process is gone.
        self._tail.thread.join(_GRACE)
        self._finish()
        code = self._process.returncode
        how = (
            f"was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"ended (exit code {code})"
        )
        return ChildDied(f"{self.name} {how}{self._tail.words()}", code)


def ready_among(children: Sequence[Child], timeout: float) -> list[Child]:
    """Return those of several children that `receive` has a message or an error of, waiting for the first."""
    poll, owners = select.poll(), {}
    for child in children:
        for fd in child.descriptors():
            poll.register(fd, select.POLLIN)
            owners[fd] = child
    found = {id(owners[fd]): owners[fd] for fd, _ in poll.poll(1000 * timeout)}
    return list(found.values())


_SERVERS: set[Child] = set()


class _Tail:
    """Drains the output of a child, so that it never blocks, and keeps the end of it."""

    def __init__(self, printed: int, death: int | None) -> None:
        self._printed = printed
        self._death = death
        self._end = b""
        os.set_blocking(printed, False)
        self.thread = threading.Thread(target=self._drain, name="child output", daemon=True)
        self.thread.start()

    def words(self) -> str:
        """Return the last lines, formatted for the end of a message."""
        lines = self._end.decode(errors="replace").splitlines()
        # The fault handler lists every loaded module in one long, useless line.
        lines = [line.rstrip() for line in lines if not line.startswith("Extension modules:")]
        kept = [line for line in lines if line][-_TAIL_LINES:]
        plain = ["".join(c if c.isprintable() else " " for c in line)[:200] for line in kept]
        return "; it printed last:\n  " + "\n  ".join(plain) if plain else ""

    def _drain(self) -> None:
        poll = select.poll()
        poll.register(self._printed, select.POLLIN)
        if self._death is not None:
            poll.register(self._death, select.POLLIN)
        is_over = False
        while not is_over:
            is_over = any(fd == self._death for fd, _ in poll.poll())
            with contextlib.suppress(BlockingIOError):
                # A dead child's pipe is drained too; one that a grandchild keeps open is left.
                while data := os.read(self._printed, 1 << 16):
                    self._end = (self._end + data)[-_TAIL_BYTES:]
                return


def _environment() -> dict[str, str]:
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **threads, "PYTHONPATH": path}


def own_greeting() -> dict[str, Any]:
    """Return what a child takes over from this process: its import path, plugins and determinism."""
    torch = sys.modules.get("torch")
    return {
        "path": [os.path.abspath(entry) for entry in sys.path],
        "python_path": os.environ.get("PYTHONPATH"),
        "plugins": list(registry.loaded_plugins),
        "deterministic": 0 if torch is None else torch.get_deterministic_debug_mode(),
    }


def _open_death(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None if not supported."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _kill_group(pid: int, number: int) -> None:
    # The child leads its own process group, so that the processes it started end with it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _end(process: subprocess.Popen[bytes], tail: threading.Thread, fds: list[int]) -> None:
    """Kill the whole group, reap the child and close our ends; runs once, at exit at the latest."""
    # The group first: until its leader is reaped, its process id cannot be reused.
    _kill_group(process.pid, signal.SIGKILL)
    process.wait()
    # The garbage collector may call this in any thread, even in that one.
    if tail is not threading.current_thread():
        tail.join(_GRACE)
    for fd in fds:
        os.close(fd)
