"""Children of `ludus.process.child`, forked from a process that has everything imported.

An interpreter that imports torch takes seconds, which most tests of what a child does need not spend. The
child is as a fresh one: it is forked from a process that has imported modules and done nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
_MODULE = "ludus.process.child_main"
_PYTHON, _HIGH = sys.executable, 500
_IMPORTED = (
    "torch", "numpy", "gymnasium", "gymnasium.wrappers", "gymnasium.envs.classic_control", "sklearn.datasets",
    _MODULE, "ludus.envs.worker_main", "ludus.judge.worker", "ludus.active.stream.retrainer",
    "ludus.session.session", "ludus.supervised.trainers.supervised", "ludus.rl.agents.dqn",
    "ludus.rl.agents.ppo",
)  # fmt: skip


class WarmChildren:
    """The tests' side: starts children and learns how they ended."""

    def __init__(self) -> None:
        self._own, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.warm_children", str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        theirs.close()

    def ask(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Send a request with descriptors and return the answer."""
        data = json.dumps(request).encode()
        with self._lock:
            self._own.sendall(len(data).to_bytes(8))
            socket.send_fds(self._own, [b"."], fds)
            self._own.sendall(data)
            answer: dict[str, Any] = json.loads(
                _read(self._own, int.from_bytes(_read(self._own, 8)))
            )
        return answer

    def popen(self, command: list[str], **options: Any) -> Any:
        """Start what is one of our children from the warm process, and anything else as it is."""
        if _MODULE not in command or command[0] != _PYTHON:
            return _POPEN(command, **options)
        return _Started(self, command, **options)

    def close(self) -> None:
        """End the process, and all its children with it."""
        self._own.close()
        self.process.wait()


class ForkedChildren(WarmChildren):
    """The same, forked from this process, which has everything imported and done nothing else yet."""

    def __init__(self) -> None:
        importlib.import_module(_MODULE)
        self._own, theirs = socket.socketpair()
        self._lock = threading.Lock()
        pid = os.fork()
        if pid == 0:
            self._own.close()
            _be_forked(theirs)
        theirs.close()
        self.process = SimpleNamespace(pid=pid)

    def serve_children(self) -> None:
        """Let the children of this process be forked rather than started, from now on."""
        from ludus.process import child

        child.subprocess = SimpleNamespace(Popen=self.popen, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]


def _be_forked(theirs: socket.socket) -> None:
    code = 0
    try:
        arguments = _serve(theirs)
        sys.modules[_MODULE].main(arguments)
        sys.stdout.flush()
    except EOFError:
        pass
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


_POPEN = subprocess.Popen


class _Started:
    """What `Child` needs of a Popen."""

    def __init__(
        self, server: WarmChildren, command: list[str], *, pass_fds: Any, stdout: int, env: Any,
        **others: Any,
    ) -> None:  # fmt: skip
        assert others.pop("start_new_session")
        assert others.pop("stderr") == stdout
        assert others == {"stdin": subprocess.DEVNULL}
        arguments = command[command.index(_MODULE) + 1 :]
        # It dies with the process that forked it, which ends with the tests.
        arguments[3] = str(server.process.pid)
        request = {"arguments": arguments, "env": env, "cwd": os.getcwd(), "fds": list(pass_fds)}
        self._server, self.returncode = server, None
        self.pid = server.ask(request, [stdout, *pass_fds])["pid"]

    def wait(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask({"wait": self.pid}, [])["code"]
        return self.returncode


def _read(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        some = end.recv(count - len(data))
        if not some:
            raise EOFError
        data += some
    return data


def _serve(end: socket.socket) -> list[str]:
    """Fork children until the tests close their end; in a child, return what it is to do."""
    while True:
        size = int.from_bytes(_read(end, 8))
        _, fds, _, _ = socket.recv_fds(end, 1, 16)
        request = json.loads(_read(end, size))
        if "wait" in request:
            answer = {"code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        else:
            ready, tell = os.pipe()
            answer = {"pid": os.fork()}
            if not answer["pid"]:
                os.setsid()
                os.write(tell, b".")
                end.detach()  # its number may be another's now
                return _become(request, fds)
            # Its group is there before anybody can want to end it.
            os.read(ready, 1)
            for fd in (ready, tell, *fds):
                os.close(fd)
        data = json.dumps(answer).encode()
        end.sendall(len(data).to_bytes(8) + data)


def _become(request: dict[str, Any], fds: list[int]) -> list[str]:
    """Take the descriptors, variables and folder that a process started afresh would have."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    # First out of the way of the numbers that they are to have.
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in (nowhere, fds[0], fds[0], *fds[1:])]
    numbers = [0, 1, 2, *request["fds"]]
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
    for fd in range(3, _HIGH + len(moved)):
        if fd not in numbers:
            with contextlib.suppress(OSError):
                os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    arguments: list[str] = request["arguments"]
    return arguments


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)
    # A child that looks for garbage among all that is imported would copy the memory of it.
    gc.collect()
    gc.freeze()
    try:
        arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    except EOFError:
        sys.exit()
    # As deep in the stack as a process started afresh: what it prints when it dies is as long.
    sys.modules[_MODULE].main(arguments)
    sys.stdout.flush()
    os._exit(0)
