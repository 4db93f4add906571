"""Small streams for tests: configs as data, and real processes."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ludus
from ludus.config import strict_yaml

ROOT = Path(__file__).parents[3]
SECRET = "a secret that both sides know"


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
        "name": "edge", "seed": 0,
        "data": {"kind": "digits", "validation_fraction": 0.1, "test_fraction": 0.25,
                 "standardise": False},
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
        max_rounds=2, initial_labels=40, queries=20, max_epochs=12, start="warm",
        early_stopping=None, best_model=None, calibration=None,
        model={"kind": "mlp", "inputs": 64, "widths": [32], "outputs": 10, "activation": "relu",
               "dropout": 0.0, "layer_norm": False},
        **{"settings.display": "none", "settings.loggers": [],
           "settings.checkpoint.every_stages": 1},
    )  # fmt: skip
    data = training.model_dump()
    return {"name": "datacenter", "training": data, "state_estimation": None, **changes}


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

    def wait_for(self, words: str, seconds: float = 60.0) -> None:
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

    def end(self, seconds: float = 60.0) -> int:
        """Wait for its end; return the exit code."""
        out, _ = self.process.communicate(timeout=seconds)
        self.text += out.decode()
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.end()
