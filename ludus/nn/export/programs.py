"""Write networks as programs: a torch.export program (.pt2), or ONNX.

The first dimension of every input, the batch, is of any size; all others are those of the example.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch.export import ExportedProgram

from ludus.config.optional import optional
from ludus.core.abilities import Program
from ludus.core.errors import LudusError
from ludus.store.outputs import check_file, head_of, write_file

Format = Literal["torch", "onnx"]
SUFFIXES: Mapping[Format, str] = {"torch": ".pt2", "onnx": ".onnx"}
_PRODUCER = "ludus"
_MARK = "ludus.txt"
_OPERATOR = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")


def write_program(program: Program, path: Path, format_: Format) -> None:
    """Write a program to a file, which may replace one that ludus wrote; raise LudusError if it cannot be."""
    is_ours, what = _IS_OURS[format_], _WHAT[format_]
    check_file(path, is_ours, what=what)
    if format_ == "onnx":
        optional("onnxscript", key="--format onnx", extra="export")
    with _quietly():
        exported = _exported(program)
        data = _WRITE[format_](program, exported)
    write_file(path, data, is_ours, what=what)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep what the exporters log and print from the terminal; their errors become a sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _exported(program: Program) -> ExportedProgram:
    """Return the torch.export program of a network."""
    batch, inputs = torch.export.Dim("batch"), program.inputs
    shapes = {name: {0: batch} for name in inputs}
    given = ((), dict(inputs)) if program.is_by_name else (tuple(inputs.values()), None)
    dynamic: Any = shapes if program.is_by_name else tuple(shapes.values())
    try:
        with torch.no_grad():
            return torch.export.export(program.module, *given, dynamic_shapes=dynamic)
    except Exception as error:
        # Whatever the code of a network and the tracer may raise.
        line = str(error).strip().partition("\n")[0]
        raise LudusError(
            f"the network {_name(program)} cannot be exported, for its forward is not one graph for all"
            f" batches: {line} (torch.export); let it decide nothing by the values of its inputs"
        ) from error


def _name(program: Program) -> str:
    return type(program.module).__name__


def _as_torch(program: Program, exported: ExportedProgram) -> bytes:
    """Return the bytes of a .pt2 file."""
    out = io.BytesIO()
    torch.export.save(exported, out, extra_files={_MARK: _PRODUCER})
    return out.getvalue()


def _as_onnx(program: Program, exported: ExportedProgram) -> bytes:
    """Return the bytes of an ONNX file."""
    _flatten_contiguous(exported)
    options: dict[str, Any] = {
        "input_names": list(program.inputs),
        "output_names": [program.output],
    }
    try:
        found: Any = torch.onnx.export(exported, dynamo=True, verbose=False, **options)
    except Exception as error:
        raise _no_onnx(program, error) from error
    found.model.producer_name = _PRODUCER
    with tempfile.TemporaryDirectory(prefix="ludus-onnx-") as folder:
        path = Path(folder) / "model.onnx"
        try:
            found.save(path)
        except ValueError as error:
            raise LudusError(
                f"the network {_name(program)} is too large for one ONNX file, which holds 2 GB; export it"
                f" with --format torch ({str(error).partition(chr(10))[0]})"
            ) from error
        return path.read_bytes()


def _flatten_contiguous(exported: ExportedProgram) -> None:
    """Let every flatten read contiguous memory: of images in channels-last order it would become a view."""
    graph = exported.graph_module.graph
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.flatten.using_ints):
        with graph.inserting_before(node):
            options = {"memory_format": torch.contiguous_format}
            copied = graph.call_function(torch.ops.aten.clone.default, (node.args[0],), options)
        copied.meta = dict(node.args[0].meta)
        node.args = (copied, *node.args[1:])
    exported.graph_module.recompile()


def _no_onnx(program: Program, error: Exception) -> LudusError:
    """Return the error for a network that ONNX cannot express."""
    if operator := _OPERATOR.search(str(error)):
        return LudusError(
            f"the network {_name(program)} computes {operator[1]}, for which ONNX has no operator; export it"
            " with --format torch, or compute it otherwise"
        )
    # The summary names the innermost error; the lines before it are advice on reporting bugs.
    lines = [line for line in str(error).split("\n") if line.startswith("<class ")]
    line = (lines or str(error).split("\n"))[0].strip()
    return LudusError(
        f"the network {_name(program)} cannot be written as ONNX: {line[:300]}; export it with --format torch"
    )


def _is_torch(path: Path) -> bool:
    """Return whether this is a .pt2 file that ludus wrote."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith(_MARK) for name in archive.namelist())


def _is_onnx(path: Path) -> bool:
    """Return whether this is an ONNX file that ludus wrote: its producer stands at its beginning."""
    return _PRODUCER.encode() in head_of(path, 32)


_IS_OURS: Mapping[Format, Callable[[Path], bool]] = {"torch": _is_torch, "onnx": _is_onnx}


def is_program(path: Path) -> bool:
    """Return whether this is a file that `export` wrote, by its suffix and its content."""
    return any(
        path.suffix == SUFFIXES[name] and is_ours(path) for name, is_ours in _IS_OURS.items()
    )


_WHAT: Mapping[Format, str] = {"torch": "a torch program", "onnx": "an ONNX file"}
_WRITE: Mapping[Format, Callable[[Program, ExportedProgram], bytes]] = {
    "torch": _as_torch,
    "onnx": _as_onnx,
}
