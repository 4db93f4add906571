"""Run a user's script in a process that may kill itself, with its runs stored in another directory.

python -m ludus.testing.script_victim ROOT [--at-boundary RUN:N] [--at-point NAME] -- SCRIPT [ARGUMENT]...

The script itself is not changed. Each run of its `fit` is stored below ROOT, and resumed if it has begun
already; it is saved as often as asked for, and shows nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from ludus.config.base import TrainerConfig
from ludus.config.registry import load_plugin
from ludus.core.run import Observer
from ludus.core.runtime import Request, Runtime
from ludus.core.trainer import Trainer
from ludus.session.begun import as_begun
from ludus.session.script import ScriptFailed, run_as_main
from ludus.session.trainer import SessionServices
from ludus.show.terminal import warn
from ludus.store import checkpoint
from ludus.store.places import open_storage
from ludus.testing.trainers import Watched
from ludus.testing.victim import kill_at, killer

FAILED = "ludus verify: "
"""Prefix of the message on standard error that says why a script failed."""


def main() -> None:
    """Read the command line and run the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--at-boundary")
    parser.add_argument("--at-point")
    parser.add_argument("--every-stages", type=int)
    parser.add_argument("--like", type=Path)
    parser.add_argument("--plugin", action="append", default=[])
    # Everything after the first -- belongs to the script.
    cut = sys.argv.index("--")
    options = parser.parse_args(sys.argv[1:cut])
    script, *arguments = sys.argv[cut + 1 :]
    for plugin in options.plugin:
        load_plugin(plugin)
    if options.at_point is not None:
        checkpoint.passed = killer(options.at_point)  # type: ignore[assignment]
    index, boundary = (int(n) for n in (options.at_boundary or "-1:0").split(":"))
    places = Places(
        options.root,
        index,
        kill_at(boundary),
        every_stages=options.every_stages,
        like=options.like,
    )

    def runtime(services: SessionServices, trainer: Trainer, request: Request) -> Runtime:
        return places.make_runtime(trainer, request)

    SessionServices.runtime = runtime  # type: ignore[assignment, method-assign]
    sys.exit(run_script(script, arguments))


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Run a script as `python SCRIPT ARGUMENTS` would; return its exit code, and print why it failed."""
    sys.path[0] = str(Path(script).absolute().parent)
    try:
        run_as_main(script, arguments)
    except ScriptFailed as failed:
        if failed.__cause__ is not None:
            traceback.print_exception(failed.__cause__)
        warn(f"{FAILED}{failed}")
        return 1
    return 0


class Places:
    """Assigns a directory to each run of a script, in the order of their first `fit`."""

    def __init__(
        self,
        root: Path,
        index: int,
        kill: Observer,
        *,
        every_stages: int | None,
        like: Path | None,
    ) -> None:
        """Kill the run with this index (-1: none). Settings on auto are chosen as in the runs at `like`."""
        self._like = like
        self._root = root
        self._index, self._kill = index, kill
        self._every_stages = every_stages
        self._seen: dict[tuple[str, str], int] = {}

    def make_runtime(self, trainer: Trainer, request: Request) -> Runtime:
        """Return a session like that of the script, with its directory elsewhere."""
        config = trainer.config
        if isinstance(config, TrainerConfig):
            changes: dict[str, object] = {"settings.display": "none"}
            if self._every_stages is not None:
                changes["settings.checkpoint.every_stages"] = self._every_stages
            trainer.config = config.replace(**changes)
        where, name = str(request.root), str(request.name or getattr(config, "name", "run"))
        storage, trainer.storage = trainer.storage, None
        if storage is not None:
            where, name = str(getattr(storage, "place", "")), "run"
        is_first = (where, name) not in self._seen
        index = self._seen.setdefault((where, name), len(self._seen))
        own = self._root / f"{index:03d}"
        if self._like is not None and isinstance(config, TrainerConfig):
            decided = open_storage(self._like / own.name / name)
            trainer.config = as_begun(trainer.config, decided)
        # A later fit of the same run says itself whether it resumes.
        resume = request.resume or (is_first and (own / name).exists())
        moved = dataclasses.replace(request, root=str(own), name=name, resume=resume)
        watch = [self._kill] if index == self._index else []
        session = Watched(trainer, moved, watch=watch, leave_out=None)
        trainer.storage = storage
        return session


if __name__ == "__main__":
    main()
