"""Small streams for tests: configs as data, and real processes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import ludus
from ludus.active.stream.config import LinkConfig, RetrainingConfig, StreamConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.edge import Edge
from ludus.active.stream.link import LoopbackLink
from ludus.active.stream.server import Server
from ludus.active.stream.wire import Message
from ludus.config import strict_yaml
from ludus.config.migrations import VERSION
from ludus.config.sections import validate
from ludus.store.local import LocalStorage
from tests.faults.warm import WarmProcess

ROOT = Path(__file__).parents[3]
SECRET = "a secret that both sides know"
WHO = {"edge": "edge", "life": "abc"}
DATA = {"kind": "digits", "validation_fraction": 0.1, "test_fraction": 0.25, "standardise": False}
INTRODUCTION = {**WHO, "state_estimation_host": "edge", "seed": 0, "data": DATA}
SAMPLES = {
    "inputs": torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
    "targets": torch.arange(60) % 10,
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def link(port: int) -> dict[str, Any]:
    return {
        "port": port, "secret_file": None, "secret_variable": "STREAM_SECRET",
        "max_message_bytes": 10_000_000, "timeout_seconds": 20.0,
    }  # fmt: skip


def stream(**changes: Any) -> dict[str, Any]:
    """Return the keys of a stream that asks for retraining at its first check: it is told to."""
    return {
        "name": "edge", "seed": 0, "data": DATA,
        "shift": {"kind": "static", "weights": None},
        "num_steps": 8, "samples_per_step": 20, "keep_samples": 100, "send_samples": 60,
        "check_every_steps": 2, "state_estimation_host": "edge",
        "state_estimation": estimation(), "features_layer": None, "wait_for_update": True,
        **changes,
    }  # fmt: skip


def estimation(threshold: float = 1.2) -> dict[str, Any]:
    estimators = [{"kind": "entropy", "threshold": threshold}]
    return {"estimators": estimators, "after_windows": 1, "max_consecutive": 2}


def retraining(**changes: Any) -> dict[str, Any]:
    training = ludus.example("active").replace(
        max_rounds=2, initial_labels=40, queries=20, max_epochs=12, round_start="warm",
        evaluation__patience=None, evaluation__keep=0, calibration=None,
        model={"kind": "mlp", "inputs": 64, "widths": [32], "outputs": 10, "activation": "relu",
               "dropout": 0.0, "layer_norm": False},
        **{"settings.display": "none", "settings.loggers": [],
           "settings.checkpoint.every_stages": 1},
    )  # fmt: skip
    data = training.model_dump()
    return {"name": "datacenter", "training": data, "state_estimation": None, **changes}


def whole(kind: str, port: int, **changes: Any) -> dict[str, Any]:
    """Return the data of a complete file of a program."""
    own = stream() if kind == "edge" else {**retraining(), "ends_with_edge": False}
    return {"version": VERSION, "kind": kind, "link": link(port), **own, **changes}


def standalone(**changes: Any) -> dict[str, Any]:
    return {
        "version": VERSION, "kind": "standalone", "edge": stream(), "datacenter": retraining(), **changes
    }  # fmt: skip


def center(root: Path, told: list[str] | None = None, **changes: Any) -> Datacenter:
    config = validate(RetrainingConfig, retraining(**changes), source="test")
    tell = [].append if told is None else told.append
    return Datacenter(config, LocalStorage(root / "datacenter"), tell=tell)


def edge(root: Path, given: Any, told: list[str] | None = None, **changes: Any) -> Edge:
    config = validate(StreamConfig, stream(**changes), source="test")
    tell = [].append if told is None else told.append
    return Edge(config, given, LocalStorage(root / config.name), tell=tell)


@contextmanager
def serving(root: Path, told: list[str], **changed: Any) -> Iterator[tuple[Server, Any]]:
    """Give a datacenter that listens in a thread, and what makes a link to it."""
    ends = bool(changed.pop("ends_with_edge", False))
    one = changed.pop("center", None) or center(root, told)
    own = {**link(free_port()), **changed}
    server = Server(
        validate(LinkConfig, own, source="test"), SECRET.encode(), one,
        ends_with_edge=ends, tell=told.append,
    )  # fmt: skip
    thread = threading.Thread(target=server.serve)
    thread.start()

    links: list[LoopbackLink] = []

    def reach(**other: Any) -> LoopbackLink:
        links.append(LoopbackLink(validate(LinkConfig, {**own, **other}, source="test")))
        return links[-1]

    try:
        yield server, reach
    finally:
        for one in links:
            one.close()
        server.is_over.set()
        thread.join(60)


class Recorder:
    """A link to a datacenter that retrains at once, into the same weights, and keeps what it was told.

    For the first `lag` questions after each other it says that the retraining is under way.
    """

    def __init__(self, root: Path, *, lag: int = 0, **changes: Any) -> None:
        self.center, self.told, self.update = center(root, **changes), list[Message](), 0
        self._lag = self._left = lag

    def heard(self, kind: str) -> list[Message]:
        return [one for one in self.told if one.kind == kind]

    def ask(self, kind: str, header: Any, tensors: Any) -> Message:
        self.told.append(Message(kind, header, tensors))
        if kind == "prep_retraining":
            self._left = self._lag
            return Message(kind, {"status": "prepared"}, {})
        if kind == "retraining":
            if self._left:
                self._left -= 1
                return Message(kind, {"status": "running"}, {})
            found, weights = self.center._updated()
            self.update = header["update"]
            return Message(kind, {**found, "update": self.update}, weights)
        return Message(kind, *self.center.answer(Message(kind, header, tensors)))

    def close(self) -> None: ...


def hello(one: Datacenter, name: str = "edge", host: str = "edge", life: str = "abc") -> Any:
    """Introduce an edge; return the answer."""
    header = {**INTRODUCTION, "edge": name, "life": life, "state_estimation_host": host}
    return one.answer(Message("handshake", header, {}))


def say(
    one: Datacenter, kind: str, header: dict[str, Any], tensors: Any = None, **who: str
) -> dict[str, Any]:
    """Return the header of the answer to a message of an edge."""
    return one.answer(Message(kind, {**WHO, **who, **header}, tensors or {}))[0]


def lines(root: Path, name: str = "edge") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / name / "stream.jsonl").read_text().splitlines()]


def until(is_true: Callable[[], bool], one: Datacenter, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        one.tend()
        time.sleep(0.02)


def write(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(strict_yaml.dump(data))
    return path


class Process:
    """A real `ludus stream`, whose lines are read as they come."""

    def __init__(self, config: Path, root: Path, secret: str = SECRET) -> None:
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "STREAM_SECRET": secret, "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "ludus.cli", "stream", str(config), "--root", str(root)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.text = ""

    def wait_for(self, words: str, seconds: float = 300.0) -> None:
        """Read on until these words came."""
        deadline = time.monotonic() + seconds
        assert self.process.stdout is not None
        while words not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"{words!r} did not come; it said:\n{self.text}"
            if select.select([self.process.stdout], [], [], left)[0]:
                some = os.read(self.process.stdout.fileno(), 65536).decode()
                assert some, f"{words!r} did not come before the end:\n{self.text}"
                self.text += some

    def end(self, seconds: float = 300.0) -> int:
        """Wait for its end; return the exit code."""
        out, _ = self.process.communicate(timeout=seconds)
        self.text += out.decode()
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.end()


class Forked:
    """The same, forked from the process that has everything imported."""

    def __init__(self, warm: WarmProcess, config: Path, root: Path, secret: str = SECRET) -> None:
        variables = {**os.environ, "STREAM_SECRET": secret}
        words = ["stream", str(config), "--root", str(root)]
        self._warm = warm
        self._pid = warm.start(
            "plain_command", words=words, cwd=str(ROOT), stdin="", variables=variables
        )
        self._has_ended, self.text = False, ""

    def wait_for(self, words: str) -> None:
        """Wait until these words came."""
        self.text = self._warm.wait_for(words, self._pid)

    def end(self) -> int:
        """Wait for its end; return the exit code."""
        code = self._warm.wait(self._pid)
        self._has_ended, self.text = True, self._warm.output(self._pid)
        return code

    def kill(self) -> None:
        """Kill it if it has not ended."""
        if not self._has_ended:
            os.kill(self._pid, signal.SIGKILL)
            self.end()
