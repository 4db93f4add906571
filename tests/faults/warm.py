"""A process that has torch imported and forks a child for each job: a kill costs no new interpreter.

It reads one JSON object a line, `{"start": job, "with": {...}}` or `{"wait": pid}`, and answers with one.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.command_line import Outcome

ROOT = Path(__file__).parents[2]


class WarmProcess:
    """The tests' side: start jobs of tests/faults/jobs.py in children and wait for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._outputs: dict[int, Path] = {}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.warm"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def start(self, job: str, *, is_apart: bool = False, **arguments: Any) -> int:
        """Begin a job in a child of its own and return its process id.

        What it prints to standard error comes into the same file, unless that is to be kept apart.
        """
        self._count += 1
        output = self._folder / f"output-{self._count}"
        request = {"start": job, "with": arguments, "output": str(output), "is_apart": is_apart}
        pid: int = self._ask(**request)["pid"]
        self._outputs[pid] = output
        return pid

    def output(self, pid: int) -> str:
        """Return what a child has printed so far."""
        return self._outputs[pid].read_text()

    def wait_for(self, text: str, pid: int) -> str:
        """Return what a child has printed once it has printed this."""
        end = time.monotonic() + 300
        while time.monotonic() < end:
            if text in (output := self.output(pid)):
                return output
            time.sleep(0.01)
        raise AssertionError(f"process {pid} never said '{text}': {self.output(pid)}")

    def wait(self, pid: int) -> int:
        """Return the exit code of a child; minus the signal's number if one killed it."""
        code: int = self._ask(wait=pid)["code"]
        return code

    def run(self, job: str, **arguments: Any) -> tuple[int, str]:
        """Do a job and return its exit code and what it printed."""
        pid = self.start(job, **arguments)
        code = self.wait(pid)
        return code, self.output(pid)

    def command(
        self, *words: str, cwd: Path, stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> Outcome:
        """Do what `ludus WORDS...` does in that directory, and return what a user sees of it."""
        variables = {**os.environ, "TMPDIR": str(cwd), **(environment or {})}
        given = {"words": words, "cwd": str(cwd), "stdin": stdin, "variables": variables}
        return self._outcome(self.start("plain_command", is_apart=True, **given))

    def script(self, path: Path, *arguments: str) -> Outcome:
        """Do what `python PATH ARGUMENTS...` does, and return what a user sees of it."""
        pid = self.start("script", is_apart=True, path=str(path), arguments=arguments)
        return self._outcome(pid)

    def _outcome(self, pid: int) -> Outcome:
        code, output = self.wait(pid), self._outputs[pid]
        return Outcome(code, output.read_text(), output.with_suffix(".errors").read_text())

    def close(self) -> None:
        """Let the server go; children that still run are the business of whoever started them."""
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(timeout=300)


def _serve() -> None:
    import torch

    from tests.faults import jobs

    # A pool of threads would not survive the fork.
    torch.set_num_threads(1)
    # A child that looks for garbage among all that is imported would copy the memory of it.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer = {"pid": _fork(jobs, request)}
        else:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        print(json.dumps(answer), flush=True)


def _fork(jobs: Any, request: dict[str, Any]) -> int:
    def opened(name: str) -> int:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    output = opened(request["output"])
    pid = os.fork()
    if pid:
        os.close(output)
        return pid
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(opened(request["output"] + ".errors") if request["is_apart"] else output, 2)
        code = getattr(jobs, request["start"])(**request["with"]) or 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
