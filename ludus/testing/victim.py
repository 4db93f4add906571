"""Run or resume a config in a process that may kill itself: the victim of the kill campaigns.

python -m ludus.testing.victim CONFIG ROOT [--at-boundary N] [--at-point NAME] [--leave-out PART] ...
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from ludus.config.base import read_config
from ludus.config.registry import load_plugin
from ludus.core.run import Observer, Run
from ludus.core.trainer import Trainer
from ludus.session.begun import as_begun
from ludus.session.build import build_trainer
from ludus.store import checkpoint
from ludus.store.places import open_storage
from ludus.testing.trainers import Watched

RUN = "victim"


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("root")
    parser.add_argument("--at-boundary", type=int)
    parser.add_argument("--at-point")
    parser.add_argument("--leave-out")
    parser.add_argument("--like", help="where a run is that decided what is auto")
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    for plugin in options.plugin:
        load_plugin(plugin)
    if options.at_point is not None:
        checkpoint.passed = killer(options.at_point)  # type: ignore[assignment]
    config = read_config(options.config, options.overrides)
    if options.like is not None:
        config = as_begun(config, open_storage(Path(options.like) / RUN))
    trainer = build_trainer(config)
    watch: list[Observer] = []
    if options.at_boundary is not None:
        watch.append(kill_at(options.at_boundary))
    run_watched(trainer, options.root, watch, leave_out=options.leave_out)


def run_watched(
    trainer: Trainer, root: str, watch: Sequence[Observer], *, leave_out: str | None
) -> None:
    """Resume the run of this trainer, with observers."""
    runtime = functools.partial(Watched, watch=watch, leave_out=leave_out)
    trainer.fit(root=root, name=RUN, resume=True, show_on="stderr", runtime=runtime)


def kill_at(boundary: int) -> Observer:
    """Return an observer that kills this process at that boundary."""

    def kill(run: Run) -> None:
        if run.boundaries == boundary:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def killer(point: str) -> Callable[[str], None]:
    """Return a function that kills this process at a point of the writer: NAME, or NAME:N for pass N."""
    name, _, occurrence = point.partition(":")
    seen = 0

    def passed(here: str) -> None:
        nonlocal seen
        seen += here == name
        if here == name and seen == int(occurrence or 1):
            os.kill(os.getpid(), signal.SIGKILL)

    return passed


if __name__ == "__main__":
    main()
