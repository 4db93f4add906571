"""`ludus stream CONFIG`: a stream, the datacenter that retrains its model, or both in one process."""

from __future__ import annotations

from typing import Annotated

import typer


def stream(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A complete YAML file: `ludus new stream`.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Change a key: num_steps=120"),
    ] = None,
    root: Annotated[
        str, typer.Option("--root", help="The directory that holds all runs.")
    ] = "runs",
) -> None:
    """Watch a stream and retrain when it drifts; the config's kind is edge, datacenter or standalone."""
    from ludus.active.stream.config import read_stream_config
    from ludus.config.registry import find
    from ludus.core.errors import LudusError
    from ludus.show.terminal import tell
    from ludus.store.places import is_url

    if is_url(root):
        raise LudusError(f"--root {root} is no directory, and a stream keeps its state in one")
    found = read_stream_config(config, overrides or [], tell=tell)
    find("program", found.kind)(found).run(root)
