"""Servers and workers that are forked from one process, which has imported what they need."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import threading

from ludus.process.child_main import Handler
from tests.process import warm_children
from tests.process.warm_children import ROOT, ForkedChildren, WarmChildren

SERVER = __name__
_IMPORTED = (
    "torch", "numpy", "uvicorn", "uvloop", "httptools", "python_multipart", "fastapi", "orjson",
    "uvicorn.protocols.http.httptools_impl", "ludus.process.child_main", "ludus.text.server.worker",
    "ludus.text.server.child", "ludus.text.server.app", "ludus.text.server.routes",
    "ludus.text.server.serving", "ludus.text.trainers.text_tuning",
)  # fmt: skip


class WarmServers(WarmChildren):
    """The tests' side of that process."""

    def __init__(self) -> None:
        self._own, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            [sys.executable, "-m", SERVER, str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        theirs.close()


def handlers() -> dict[str, Handler]:
    """Return those of a server, whose worker is forked from it rather than started."""
    ForkedChildren().serve_children()
    return importlib.import_module("ludus.text.server.child").handlers()  # type: ignore[no-any-return]


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)
    try:
        arguments = warm_children._serve(socket.socket(fileno=int(sys.argv[1])))
    except EOFError:
        sys.exit()
    sys.modules["ludus.process.child_main"].main(arguments)
    sys.stdout.flush()
    os._exit(0)
