"""Label the open queries of an active learning run: in the terminal, or from a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ludus.store.places import named_run


def label(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", callback=named_run, help="A run that waits for labels."),
    ],
    csv: Annotated[
        str | None, typer.Option("--csv", help="Take the answers from this file: row,label.")
    ] = None,
    export: Annotated[
        str | None,
        typer.Option("--export", help="Write the open queries to this file, to fill in."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run once all is answered, and label on."),
    ] = False,
) -> None:
    """Answer what a run of active learning asks for: ludus label RUN [--csv answers.csv]"""
    from ludus.active.labelling.sitting import Labelling
    from ludus.core.errors import LudusError
    from ludus.session.build import refuse_script
    from ludus.show.terminal import say
    from ludus.store.directory import found_run
    from ludus.store.outputs import write_file

    if csv is not None and export is not None:
        raise LudusError("--csv takes answers and --export writes questions; give one of them")
    if export is not None:
        path = Path(export)
        text, count = Labelling.exported(run)
        if path.is_file() and _is_export(path):
            Labelling.check_taken(run, path)
        write_file(path, text.encode(), _is_export, what="open queries")
        say(
            f"{count} open queries are in {path}; fill in `label`, then ludus label {run} --csv {path}"
        )
        return
    if resume:
        # Before anyone labels queries that the resume could not use.
        refuse_script(run, found_run(run), is_for_weights=False)
    while True:
        with Labelling(run) as labelling:
            if csv is not None:
                labelling.take_file(Path(csv))
            else:
                labelling.ask()
            is_done = labelling.report_end(is_resumed=resume)
        if not (resume and is_done) or not _waits_again(run) or csv is not None:
            return


def _is_export(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().startswith("row,label")


def _waits_again(run: str) -> bool:
    """Resume the run; return whether it has new open queries."""
    from ludus.session.build import rebuild_trainer
    from ludus.show.terminal import say

    trainer, storage = rebuild_trainer(run, [])
    trainer.set_storage(storage)
    result = trainer.fit(resume="exact")
    say(f"{result.status}: {result.reason}" if result.reason else result.status)
    return result.status == "interrupted" and bool(trainer.run.waiting_for)
