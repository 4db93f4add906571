"""The work of `ludus serve`: make the models, serve them, and end in order at the first signal."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.process.signals import on_stop
from ludus.show.terminal import say, tell
from ludus.text.server.access import TOKEN_VARIABLE
from ludus.text.server.new_models import given_model, new_model
from ludus.text.server.settings import EngineSettings, ServerSettings

if TYPE_CHECKING:
    from ludus.text.server.serving import Serving


def run_server(
    root: Path,
    engine: EngineSettings,
    server: ServerSettings,
    *,
    new_models: Sequence[str],
    models: Sequence[str],
) -> None:
    """Serve until a signal; raise LudusError for what the user must mend."""
    new, given = dict(map(new_model, new_models)), dict(map(given_model, models))
    from ludus.text.server.opening import opened_server

    running: list[Serving] = []

    def stop() -> None:
        if not running:
            raise KeyboardInterrupt
        running[0].stop()

    with (
        on_stop(stop),
        opened_server(root, engine, server, new_models=new, models=given, tell=tell) as serving,
    ):
        running.append(serving)
        say(_welcome(serving, root))
        if not _is_loopback(server.host):
            tell(f"other machines may connect to {server.host}; they need the token too")
        serving.run()
        tell("stopping; open jobs go on when this root is served again")


def _welcome(serving: Serving, root: Path) -> str:
    names = serving.engine.library.names()
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    key = f"${TOKEN_VARIABLE}" if TOKEN_VARIABLE in os.environ else f"$(cat {root / 'token'})"
    return (
        f"ludus serves {shown or 'no model yet: add one with --new-model NAME'}\n"
        f"  export OPENAI_BASE_URL={serving.url}\n"
        f'  export OPENAI_API_KEY="{key}"\n'
        "and openai.OpenAI() uses it; Ctrl-C ends it."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
