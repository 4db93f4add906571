"""Opening a server: its engine, the models that it is to have, and its socket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ludus.config.optional import optional
from ludus.session.device import resolve_device
from ludus.text.models.new_model import NewModelConfig
from ludus.text.server.engine import TextEngine
from ludus.text.server.settings import EngineSettings, Say, ServerSettings

if TYPE_CHECKING:
    from ludus.text.server.serving import Serving

_NEEDED = ("orjson", "fastapi", "uvicorn", "httptools", "uvloop", "python_multipart")


@contextlib.contextmanager
def opened_engine(
    root: Path,
    settings: EngineSettings,
    *,
    new_models: Mapping[str, NewModelConfig],
    models: Mapping[str, Path],
    tell: Say,
) -> Iterator[TextEngine]:
    """Yield the engine of a root that has these models, each checked to sample the same at any load."""
    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    device = str(resolve_device(settings.device, key="--device"))
    with TextEngine(root, replace(settings, device=device), tell=tell) as engine:
        for name, config in new_models.items():
            engine.add_new_model(name, config)
        for name, directory in models.items():
            engine.add_model(name, directory)
        for name in (*new_models, *models):
            engine.check_model(name)
        yield engine


@contextlib.contextmanager
def opened_server(
    root: Path,
    engine: EngineSettings,
    server: ServerSettings,
    *,
    new_models: Mapping[str, NewModelConfig],
    models: Mapping[str, Path],
    tell: Say,
) -> Iterator[Serving]:
    """Yield a server that listens, and answers once it runs."""
    for name in _NEEDED:
        optional(name, key="ludus serve", extra="text")
    from ludus.text.server.serving import Serving

    with opened_engine(root, engine, new_models=new_models, models=models, tell=tell) as opened:
        yield Serving(opened, server, tell=tell)
