"""Print what prizes a run of duels has given, from its journal."""

from __future__ import annotations

from typing import Annotated

import typer


def scoreboard(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run of duels.")],
    last: Annotated[bool, typer.Option("--last", help="Only the last prize.")] = False,
) -> None:
    """Print what prizes a run of duels has given."""
    from ludus.show import say
    from ludus.store import Journal, found_run

    prizes = Journal(found_run(run), "prizes")
    likes = [f"{bout}:{(prizes.get(bout) or {})['likes']}" for bout in prizes.keys()]  # noqa: SIM118
    say(likes[-1] if last else " ".join(likes))
