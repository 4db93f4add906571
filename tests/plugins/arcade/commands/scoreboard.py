"""Print how often each number of sticks has won."""

from __future__ import annotations

from typing import Annotated

import typer


def scoreboard(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run of duels.")],
    best: Annotated[bool, typer.Option("--best", help="Only the best number.")] = False,
) -> None:
    """Print how often each number of sticks has won."""
    from ludus.show.terminal import say
    from ludus.store.checkpoint import read_newest
    from ludus.store.directory import found_run

    saved = read_newest(found_run(run), damaged=say)
    assert saved is not None
    wins = saved.state["habit"]["wins"]
    say(wins.index(max(wins)) + 1 if best else " ".join(map(str, wins)))
