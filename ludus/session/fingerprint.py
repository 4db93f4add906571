"""Fingerprint of a run: versions, code, machine, device and threads, on which its bytes depend."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch

from ludus.config import registry
from ludus.config.sections import StrictConfig
from ludus.version import VERSION

_NOTED_LATER = {"instructions", "cpu_model"}
"""Facts that older runs lack."""
DATA = "data of "
"""Prefix of facts about data; some runs have none."""
_INSTALLED = {"site-packages", "dist-packages"}
# A script is not part of the fingerprint: it says how to resume, so it must be free to change.
_NOT_OUTSIDE = {"ludus", "__main__", "builtins"}


def versions() -> dict[str, str]:
    """Return the versions that numerical results depend on."""
    return {
        "ludus": VERSION,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(numpy.__version__),
    }


@functools.cache
def cpu_name() -> str:
    """Return the model name of the processor."""
    return _first_cpu().get("model name") or platform.processor() or platform.machine()


@functools.cache
def cpu_model() -> str:
    """Return the processor's family and model; empty if the system does not say."""
    facts = _first_cpu()
    return "/".join(facts[key] for key in ("cpu family", "model") if key in facts)


@functools.cache
def _first_cpu() -> dict[str, str]:
    """Return the first processor's entry in /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def machine(device: torch.device) -> dict[str, Any]:
    """Return the hardware and thread settings."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return {
        "system": platform.system(),
        "cpu": cpu_name(),
        # Virtual machines may give two kinds of processor one name, and two kinds with the same
        # vector instructions may still round differently in a math library that knows both.
        "cpu_model": cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def fingerprint(device: torch.device) -> dict[str, str]:
    """Return everything that must be equal for a resumed run to end with the same bytes."""
    facts = {**versions(), **machine(device)}
    return {name: str(value) for name, value in sorted(facts.items())}


def code_of(config: StrictConfig, plugins: Iterable[str]) -> dict[str, str]:
    """Return the version or source hash of each module outside ludus that this config runs.

    These are the plugins and the modules of the kinds it names, not what they import in turn. An
    installed package has a version; any other module has the hash of its source.
    """
    facts: dict[str, str] = {}
    for name in sorted({*plugins, *_modules_of(config)}):
        top = name.partition(".")[0]
        if top in _NOT_OUTSIDE:
            continue
        file = getattr(sys.modules.get(name), "__file__", None)
        version = _version_of(top) if file is None or _INSTALLED & {*Path(file).parts} else None
        if version is not None:
            facts[top] = version
        elif file is not None:
            facts[f"code of {name}"] = source_hash(Path(file))
    return facts


def _modules_of(value: object) -> Iterator[str]:
    """Yield the modules of the classes that the sections of this config belong to, and those they name."""
    if isinstance(value, StrictConfig):
        yield type(value).__module__
        for found in registry.classes_of(str(getattr(value, "kind", ""))):
            if isinstance(value, found.Config):
                yield found.__module__
                yield from getattr(found, "code_modules", lambda config: ())(value)
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _modules_of(item)


def _version_of(package: str) -> str | None:
    """Return the version of the distribution that installed a package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        owners = _distributions().get(package, [])
        return importlib.metadata.version(owners[0]) if owners else None


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the distributions that installed each package, found once a process.

    The list of files of everything installed is read for this, which takes 0.2 seconds.
    """
    return importlib.metadata.packages_distributions()


def source_hash(file: Path) -> str:
    """Return the first part of `source_digest`, which tells versions of a module apart."""
    return source_digest(file)[:16]


def source_digest(file: Path) -> str:
    """Return the sha256 of a module's file, or of every Python file of a package."""
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(file.parent)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return each fact that has changed, as `name: old -> new`."""
    known = {*saved, *now}
    unsaid = {n for n in known if n.startswith(DATA) and (n not in saved or n not in now)}
    names = sorted(known - unsaid - {name for name in _NOTED_LATER if name not in saved})
    return [f"{n}: {saved.get(n)} -> {now.get(n)}" for n in names if saved.get(n) != now.get(n)]


def host() -> str:
    """Return this machine's name."""
    return socket.gethostname()
