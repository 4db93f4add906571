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
import sys
import tempfile
import warnings
from collections.abc import Sequence

from ludus.testing import subjects
from tests.process.warm_children import ForkedChildren


class Forking:
    """Makes children for `ludus.testing.subjects`; begin it before anything else is done."""

    def __init__(self) -> None:
        self._own, theirs = socket.socketpair()
        if os.fork() == 0:
            self._own.close()
            _serve(theirs)
        theirs.close()

    def run_child(
        self, module: str, words: Sequence[str], *, may_die: bool, seconds: float | None
    ) -> bool:
        """Run a module in a fork, killed after so many seconds; return whether it ended well."""
        with tempfile.TemporaryFile() as errors:
            request = json.dumps({"words": [module, *words], "cwd": os.getcwd()}).encode()
            socket.send_fds(self._own, [len(request).to_bytes(8) + request], [errors.fileno()])
            pid = int.from_bytes(self._own.recv(8))
            is_late = not select.select([self._own], [], [], seconds)[0]
            if is_late:
                os.kill(pid, signal.SIGKILL)
            code = int.from_bytes(self._own.recv(8), signed=True)
            if is_late:
                return False
            if code and not (may_die and code == -9):
                errors.seek(0)
                raise subjects.Failed(subjects._last_words(errors.read().decode()))
            return code == 0


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
        ForkedChildren().serve_children()
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
