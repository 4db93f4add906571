"""Examine this machine: what ludus needs, what it can use, and how to fix the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ludus.config import families
from ludus.config.families import Finding
from ludus.show.terminal import clean


def examine() -> bool:
    """Print every finding; return whether ludus can work here."""
    console = Console(highlight=False)
    marks = {"ok": "[green]ok  [/green]", "note": "[yellow]note[/yellow]", "bad": "[red]bad [/red]"}
    is_well = True
    for mark, what, found in findings():
        is_well &= mark != "bad"
        console.print(
            f"{marks[mark]} {escape(clean(what)):<14} {escape(clean(found))}", soft_wrap=True
        )
    return is_well


def findings() -> Iterator[Finding]:
    """Yield the findings, one at a time."""
    is_right = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield (
        "ok" if is_right else "bad",
        "python",
        f"{platform.python_version()} (3.11 to 3.13 are supported)",
    )
    is_linux = sys.platform == "linux"
    system = f"{platform.system()} {platform.release()}"
    yield "ok" if is_linux else "note", "system", system if is_linux else f"{system}: best effort"
    yield from _torch()
    yield from _extras()
    for room in families.families():
        if room.findings is not None:
            yield from room.findings()
    yield _disk(Path.cwd())
    is_terminal = sys.stdout.isatty()
    yield (
        "ok",
        "display",
        "a terminal: live panels" if is_terminal else "not a terminal: plain lines",
    )


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield "bad", "torch", f"cannot be imported ({error}): pip install torch"
        return
    from ludus.session.fingerprint import cpu_name

    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    is_new = (major, minor) >= (2, 11)
    yield "ok" if is_new else "bad", "torch", f"{torch.__version__} (2.11 and newer are supported)"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "ok", "cpu", f"{cpu_name()}, {cores} cores, {torch.get_num_threads()} torch threads"
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            memory = f"{about.total_memory / 2**30:.0f} GiB"
            yield "ok", f"cuda:{index}", f"{about.name}, {memory}"
    else:
        yield "note", "cuda", "none: settings.device must be cpu or auto"
    yield from _engines()


def _engines() -> Iterator[Finding]:
    """Yield which engines can execute an update here, and what the others lack."""
    import torch

    from ludus.nn.engines.compiled import why_no_compiler

    has_cuda = torch.cuda.is_available()
    yield "ok", "engines", "eager, tape on the cpu" + (", graph on cuda" if has_cuda else "")
    if not has_cuda:
        yield "note", "engine graph", "none: it needs a CUDA device"
    for device in ["cpu", *(["cuda"] if has_cuda else [])]:
        reason = why_no_compiler(torch.device(device))
        mark, detail = (
            ("ok", f"works on {device}") if reason is None else ("note", f"none: {reason}")
        )
        yield mark, "engine compiled", detail


def _extras() -> Iterator[Finding]:
    for room in families.families():
        for module, package in room.needs.items():
            extra = package.removeprefix("ludus[").removesuffix("]")
            if importlib.util.find_spec(module):
                yield "ok", f"extra {extra}", f"{module} is installed"
            else:
                yield "note", f"extra {extra}", f"{module} is missing: pip install '{package}'"


def _disk(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free / 2**30
    try:
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            file.write(bytes(1 << 20))
            start = time.perf_counter()
            file.flush()
            os.fsync(file.fileno())
            elapsed = time.perf_counter() - start
    except OSError as error:
        return "bad", "disk", f"{directory} cannot be written: {error.strerror}"
    mark = "ok" if free > 1 else "note"
    return (
        mark,
        "disk",
        f"{free:.0f} GiB free here; a durable write of 1 MiB takes {elapsed * 1000:.1f} ms",
    )
