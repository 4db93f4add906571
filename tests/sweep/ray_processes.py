"""The processes that a sweep on Ray has started, as the system sees them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

DRIVER = "ludus.sweep.cluster.driver"
WORKER = "ludus.sweep.worker"
LOCAL_ADDRESSES = {"127.0.0.1", "::ffff:127.0.0.1"}


def driver_of(pid: int) -> psutil.Process:
    """Return the driver of the sweep in a process."""
    found = [one for one in psutil.Process(pid).children() if DRIVER in one.cmdline()]
    assert len(found) == 1, found
    return found[0]


def all_of(pid: int) -> list[psutil.Process]:
    """Return every process that the sweep in a process has started: Ray's, hosts, workers, the warden."""
    driver = driver_of(pid)
    return [driver, *driver.children(recursive=True)]


def named(processes: list[psutil.Process], name: str) -> list[psutil.Process]:
    """Return those whose command line has this word."""
    found = []
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [one] if name in " ".join(one.cmdline()) else []
    return found


def listening(processes: list[psutil.Process]) -> dict[str, set[str]]:
    """Return the addresses on which processes listen, by their names."""
    found: dict[str, set[str]] = {}
    for one in processes:
        # Ray starts short-lived processes; one that is gone listens no more.
        with contextlib.suppress(psutil.NoSuchProcess):
            for socket in one.net_connections(kind="inet"):
                if socket.status == psutil.CONN_LISTEN:
                    found.setdefault(one.name(), set()).add(socket.laddr.ip)
    return found


def token_of(processes: list[psutil.Process]) -> Path:
    """Return the file of the token that the processes of a cluster are asked for."""
    (gcs,) = [one for one in named(processes, "gcs_server") if "gcs_server" in one.cmdline()[0]]
    return Path(gcs.environ()["RAY_AUTH_TOKEN_PATH"])


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether all of them have ended, once they had time to."""
    _, left = psutil.wait_procs(processes, timeout=60)
    return not left


def folders() -> set[str]:
    """Return the folders that clusters of sweeps have now."""
    return {name for name in os.listdir("/tmp") if name.startswith("ludus-ray-")}
