"""What a run's bytes depend on besides its config: versions, machine, device, threads."""

from __future__ import annotations

import functools
import platform
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from ludus.version import VERSION


def versions() -> dict[str, str]:
    """Return the versions that numbers depend on."""
    return {
        "ludus": VERSION,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(numpy.__version__),
    }


@functools.cache
def cpu_name() -> str:
    """Return the processor's own name for itself."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def machine(device: torch.device) -> dict[str, Any]:
    """Return what computes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return {
        "system": platform.system(),
        "cpu": cpu_name(),
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def fingerprint(device: torch.device) -> dict[str, str]:
    """Return everything that must be equal for a resumed run to end with the same bytes."""
    facts = {**versions(), **machine(device)}
    return {name: str(value) for name, value in sorted(facts.items())}


def differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return each fact that has changed, as `name: old -> new`."""
    names = sorted({*saved, *now})
    return [f"{n}: {saved.get(n)} -> {now.get(n)}" for n in names if saved.get(n) != now.get(n)]


def git_state() -> dict[str, Any] | None:
    """Return the commit of the working directory, or None outside a repository."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain"))} if commit else None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=5, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def host() -> str:
    """Return this machine's name."""
    return socket.gethostname()
