"""Victims of `ludus verify`, forked from a process that has imported what they need.

`ludus verify` starts an interpreter for each run that it kills; in the tests of what it finds each is a fork
of the process as it was before the command began.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace
from typing import Any


class Forking:
    """Stands in for the module `subprocess` where only modules are run."""

    def __init__(self) -> None:
        self._own, theirs = socket.socketpair()
        if os.fork() == 0:
            self._own.close()
            _serve(theirs)
        theirs.close()

    def module(self) -> Any:
        """Return the stand-in."""
        return SimpleNamespace(
            Popen=self._popen,
            DEVNULL=subprocess.DEVNULL,
            PIPE=subprocess.PIPE,
            TimeoutExpired=subprocess.TimeoutExpired,
        )

    def _popen(self, command: list[str], **options: Any) -> _Forked:
        assert command[:2] == [sys.executable, "-m"]
        assert options == {
            "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE
        }  # fmt: skip
        reader, writer = os.pipe()
        request = json.dumps({"words": command[2:], "cwd": os.getcwd()}).encode()
        socket.send_fds(self._own, [len(request).to_bytes(8) + request], [writer])
        os.close(writer)
        return _Forked(int.from_bytes(self._own.recv(8)), reader, self._own)


class _Forked:
    """What `ludus verify` needs of a Popen."""

    def __init__(self, pid: int, reader: int, server: socket.socket) -> None:
        self.pid, self._reader, self._server = pid, reader, server
        self.returncode: int | None = None

    def communicate(self, timeout: float | None = None) -> tuple[None, bytes]:
        end, read = None if timeout is None else time.monotonic() + timeout, b""
        while True:
            left = None if end is None else max(end - time.monotonic(), 0.0)
            if not select.select([self._reader], [], [], left)[0]:
                raise subprocess.TimeoutExpired("forked", timeout or 0.0)
            some = os.read(self._reader, 65536)
            if not some:
                break
            read += some
        os.close(self._reader)
        self.returncode = int.from_bytes(self._server.recv(8), signed=True)
        return None, read

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _serve(end: socket.socket) -> None:
    """Run modules, one after the other, until the other end is closed."""
    while True:
        data, fds, _, _ = socket.recv_fds(end, 65536, 1)
        if not data:
            os._exit(0)
        request = json.loads(data[8 : 8 + int.from_bytes(data[:8])])
        pid = os.fork()
        if pid == 0:
            end.close()
            _run(request["words"], request["cwd"], fds[0])
        os.close(fds[0])
        end.sendall(pid.to_bytes(8))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        end.sendall(code.to_bytes(8, signed=True))


def _run(words: list[str], cwd: str, errors: int) -> None:
    code = 1
    try:
        for stream, fd in enumerate((os.open(os.devnull, os.O_RDWR), -1, errors)):
            os.dup2(0 if fd < 0 else fd, stream)
        os.chdir(cwd)
        sys.path.insert(0, cwd)
        sys.argv = words
        with warnings.catch_warnings():
            # The module was imported before the fork.
            warnings.simplefilter("ignore")
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)
