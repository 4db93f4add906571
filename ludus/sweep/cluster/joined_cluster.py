"""Joined cluster: one that a user has started, on whatever machines."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError
from ludus.sweep.cluster.own_cluster import import_ray

_REACH_SECONDS = 10.0
_END_SECONDS = 30.0
TOKEN_HINT = "if the cluster asks for a token, let RAY_AUTH_TOKEN_PATH name its file"


def join(header: Mapping[str, Any]) -> Any:
    """Join a cluster as its user would, and end what an earlier process of this sweep has left there."""
    address = header["address"]
    wrong = f"'engine.address' is {address}, and this cannot be joined"
    try:
        serves_this_machine = _serves_this_machine_alone(address)
    except OSError as error:
        raise LudusError(f"{wrong}: {error.strerror or error}") from error
    if serves_this_machine:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # Without the mode, Ray would not use a token that it has.
    files = (os.environ.get("RAY_AUTH_TOKEN_PATH"), Path.home() / ".ray/auth_token")
    if "RAY_AUTH_TOKEN" in os.environ or any(file and Path(file).is_file() for file in files):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    ray = import_ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise LudusError(f"{wrong}: {last_line(error)}; {TOKEN_HINT}") from error
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        named = ray.util.list_named_actors(all_namespaces=True)
        left = [one["name"] for one in named if one["namespace"] == header["namespace"]]
        if not left:
            return ray
        for name in left:
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(name, namespace=header["namespace"]), no_restart=True)
        time.sleep(0.1)
    raise LudusError(f"workers of this sweep are left on {address} and cannot be ended")


def _serves_this_machine_alone(address: str) -> bool:
    """Return whether a cluster listens on 127.0.0.1 alone; raise OSError if it does not listen at all.

    Ray would look for it at the outer address of this machine, and wait for minutes if nothing listens there.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS) as reached:
        if not reached.getpeername()[0].startswith(("127.", "::1")):
            return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outer:
        # As Ray finds its address: nothing is sent.
        try:
            outer.connect(("8.8.8.8", 80))
        except OSError:
            return True
        own = outer.getsockname()[0]
    try:
        socket.create_connection((own, int(port)), timeout=_REACH_SECONDS).close()
    except OSError:
        return True
    return False


def last_line(error: BaseException) -> str:
    """Return the last line of an error of Ray, which names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:400] if lines else type(error).__name__
