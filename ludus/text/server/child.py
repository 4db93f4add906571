"""The process of a server that a trainer has started."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ludus.config.sections import validate
from ludus.process.child_main import Answer, Handler
from ludus.show.terminal import tell
from ludus.text.models.new_model import NewModelConfig
from ludus.text.server.opening import opened_server
from ludus.text.server.settings import EngineSettings, ServerSettings

_open = contextlib.ExitStack()


def handlers() -> dict[str, Handler]:
    """Return the requests that this process handles."""
    return {"start": _start, "end": lambda header, pieces: _open.close()}


def _start(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    new = {
        name: validate(NewModelConfig, found, source=f"the new model {name}")
        for name, found in header["new_models"].items()
    }
    header["server"]["allowed_hosts"] = tuple(header["server"]["allowed_hosts"])
    serving = _open.enter_context(
        opened_server(
            Path(header["root"]),
            EngineSettings(**header["engine"]),
            ServerSettings(**header["server"]),
            new_models=new,
            models={name: Path(path) for name, path in header["models"].items()},
            tell=tell,
        )
    )
    _open.enter_context(serving.in_background())
    return {"url": serving.url, "token": serving.token}, ()
