"""Write what a run trained for use without ludus: `ludus export`, and `ludus.export` in Python."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ludus.cli.able import that_exports, that_makes_programs
from ludus.config.registry import load_plugin
from ludus.core.errors import ConfigError
from ludus.nn.export.programs import SUFFIXES, Format, write_program
from ludus.session.kept import Tell
from ludus.session.loading import place_of
from ludus.session.prepared import PreparedRun
from ludus.session.rebuilt import RebuiltRun
from ludus.store import directory
from ludus.store.places import is_url

ExportFormat = Format | Literal["numpy"]


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    to: ExportFormat = "numpy",
    model: str | Path = "best",
    root: str | Path = "runs",
    network: object = None,
    inputs: object = None,
    script: str | Path | None = None,
    plugin: str | Sequence[str] = (),
) -> Path:
    """Write what a run trained, to be used without ludus, and return the path: as `ludus export`.

    `to` is numpy (a policy, for `ludus.NumpyPolicy.load`), torch (a torch.export program) or onnx. The other
    arguments are those of `ludus.load`. `network` and `inputs` are for torch and onnx: `inputs`, a tensor or
    several by name, are examples to trace a network with whose data a script gave.
    """
    for one in [plugin] if isinstance(plugin, str) else plugin:
        load_plugin(one)
    place = None if out is None else Path(out)
    by_script = None if script is None else str(script)
    return export_run(
        place_of(run, root),
        place,
        to=to,
        model=str(model),
        network=network,
        inputs=inputs,
        script=by_script,
    )


def export_run(
    path: str,
    out: Path | None,
    *,
    to: ExportFormat = "numpy",
    model: str = "best",
    network: object = None,
    inputs: object = None,
    script: str | None = None,
    tell: Tell = warnings.warn,
) -> Path:
    """Write what the run at a location trained, and return the path."""
    if to != "numpy":
        with RebuiltRun.open(path, network=network, inputs=inputs, script=script, tell=tell) as run:
            return _write_programs(run, path, out, to, model, has_inputs=inputs is not None)
    if network is not None or inputs is not None:
        raise ConfigError(
            'to="numpy" takes no network and no inputs, but the script of the run: script="train.py"'
        )
    out = place_in_run(path, "policy") if out is None else out
    prepared = PreparedRun.open(path, script=script, check=that_exports, tell=tell)
    with prepared.prepared(model, that_exports, is_last_best=False) as chosen:
        chosen.one.export(chosen.weights, out)
    return out


def _write_programs(
    run: RebuiltRun, path: str, out: Path | None, to: Format, model: str, *, has_inputs: bool
) -> Path:
    """Write each network of a run to a file: one to `out`, several to that directory, by name."""
    suffix = SUFFIXES[to]
    out = place_in_run(path, "program") if out is None else out
    making = that_makes_programs(run.kept, path)
    if has_inputs and not getattr(making, "takes_inputs", False):
        raise ConfigError(
            f"what {path} trained takes the observations of its env: leave inputs away"
        )
    programs = run.use(run.weights(model, is_last_best=False), making.programs)
    is_one = [*programs] == [""]
    if is_one and out.suffix != suffix:
        out = out.with_name(f"{out.name}{suffix}")
    for name, program in programs.items():
        write_program(program, out if is_one else out / f"{name}{suffix}", to)
    return out


def place_in_run(path: str, name: str) -> Path:
    """Return the path of an output file in a run directory."""
    storage = directory.found_run(path)
    if is_url(storage.place):
        raise ConfigError(f"{storage.place} is not a directory of this machine; give --out")
    return Path(storage.place) / name
