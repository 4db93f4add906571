"""Serve models of this machine by the HTTP interface of OpenAI: chat completions and fine-tuning jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NewModels = Annotated[
    list[str] | None,
    typer.Option(
        "--new-model",
        metavar="NAME[=PRESET or YAML]",
        help="Make a byte-level model with random weights: tiny (default), small, medium, or of a file.",
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME=DIRECTORY", help="Take in the model of a directory."),
]


def serve(
    root: Annotated[
        str, typer.Option("--root", metavar="DIR", help="Where models, files and jobs are kept.")
    ] = "ludus-server",
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0: a free one.")] = 8000,
    new_model: NewModels = None,
    model: Models = None,
    threads: Annotated[int, typer.Option("--threads", help="Threads of torch.")] = 1,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, or auto.")] = "cpu",
    max_models: Annotated[
        int, typer.Option("--max-models", help="The most models in memory at a time.")
    ] = 8,
    memory_gb: Annotated[
        float | None, typer.Option("--memory-gb", help="The most memory for their weights.")
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", help="The most samples of a model at a time.")
    ] = 512,
    requests_per_minute: Annotated[
        int | None, typer.Option("--requests-per-minute", help="Refuse more with 429.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option("--tokens-per-minute", help="Refuse more with 429.")
    ] = None,
    max_file_mb: Annotated[int, typer.Option("--max-file-mb", help="The largest upload.")] = 1024,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name that clients call this machine."),
    ] = None,
    inexact: Annotated[
        bool,
        typer.Option("--inexact", help="Serve models whose samples may depend on the load, too."),
    ] = False,
) -> None:
    """Serve language models like OpenAI does, on this machine: ludus serve --new-model tiny"""
    from ludus.text.server.command import run_server
    from ludus.text.server.settings import MEBI, EngineSettings, ServerSettings

    engine = EngineSettings(
        num_threads=threads,
        max_rows=max_rows,
        max_loaded_models=max_models,
        max_memory_gb=memory_gb,
        needs_same_text=not inexact,
        device=device,
    )
    server = ServerSettings(
        host=host,
        port=port,
        allowed_hosts=tuple(allow_host or ()),
        max_file_bytes=max_file_mb * MEBI,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
    )
    run_server(Path(root), engine, server, new_models=new_model or (), models=model or ())
