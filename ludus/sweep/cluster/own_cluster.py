"""Cluster that a sweep starts on its machine, and that ends with it."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from ludus.config.optional import optional
from ludus.sweep.cluster.warden import fork_warden

_OBJECT_STORE_BYTES = 80 * 2**20
"""Nearly the least that Ray takes: only short texts are sent."""


def import_ray() -> Any:
    """Return Ray; what it is to know from the environment has been set before."""
    return optional("ray", key="'engine.kind' ray", extra="ray")


def start(header: Mapping[str, Any]) -> tuple[Any, list[psutil.Process]]:
    """Start a cluster that listens on 127.0.0.1 alone and asks for a token."""
    # Short, as the names of sockets below it may have 107 letters.
    short = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="ludus-ray-", dir=short)
    fork_warden(folder, kept=[header["warden"]])
    token = Path(folder, "token")
    descriptor = os.open(token, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    # Nothing of the environment is about this cluster.
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ |= {
        # Ray rewrites 127.0.0.1 to an address that others reach, unless it is to serve this machine alone.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        # A run that needs too much memory is ended as with the engine local, not by Ray.
        "RAY_memory_monitor_refresh_ms": "0",
        # For the hosts, which import ludus.
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
    }
    ray = import_ray()
    ray.init(
        address="local",
        num_cpus=header["workers"],
        num_gpus=header["num_gpus"],
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level="ERROR",
        # Ray lets everybody write there; the folder around it is ours.
        _temp_dir=f"{folder}/ray",
    )
    daemons = [
        child for child in psutil.Process().children() if child.name() in ("gcs_server", "raylet")
    ]
    return ray, daemons
