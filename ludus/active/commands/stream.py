"""`ludus stream CONFIG`: a stream, the datacenter that retrains its model, or both in one process."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.show.terminal import say

if TYPE_CHECKING:
    from ludus.active.stream.config import DatacenterConfig


def stream(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A complete YAML file.")],
    root: Annotated[
        str, typer.Option("--root", help="The directory that holds all runs.")
    ] = "runs",
) -> None:
    """Watch a stream and retrain when it drifts; the config's kind is edge, datacenter or standalone."""
    from ludus.active.stream.config import DatacenterConfig, EdgeConfig, read_stream_config
    from ludus.active.stream.datacenter import Datacenter
    from ludus.active.stream.edge import Edge
    from ludus.active.stream.link import DirectLink, LoopbackLink

    found = read_stream_config(config)
    if isinstance(found, EdgeConfig):
        Edge(found, LoopbackLink(found.link), root=root, tell=_of_edge).run()
    elif isinstance(found, DatacenterConfig):
        _serve(found, root)
    else:
        datacenter = Datacenter(found.datacenter, root=root, tell=_of_datacenter)
        try:
            Edge(found.edge, DirectLink(datacenter), root=root, tell=_of_edge).run()
        finally:
            datacenter.close()


def _serve(config: DatacenterConfig, root: str) -> None:
    from ludus.active.stream.datacenter import Datacenter
    from ludus.active.stream.server import Server

    config.link.secret()
    datacenter = Datacenter(config, root=root, tell=_of_datacenter)
    server = Server(config, datacenter, _of_datacenter)

    def stop(number: int, frame: FrameType | None) -> None:
        server.is_over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        server.serve()
    finally:
        datacenter.close()
    _of_datacenter("ended in order; the same command goes on from here")


def _of_edge(text: str) -> None:
    say(f"edge: {text}")


def _of_datacenter(text: str) -> None:
    say(f"datacenter: {text}")
