"""Make what people see of a run: its display, and the plot of its curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rich.console import Console

from ludus.core.errors import RunError
from ludus.core.runtime import Plotted
from ludus.core.trainer import Trainer
from ludus.judge.judge import judged_metrics
from ludus.show.display import Display, make_display


def display_of(
    trainer: Trainer, kind: str, facts: Mapping[str, str], *, show_on: Literal["stdout", "stderr"]
) -> Display:
    """Return the display of this kind for a run of this trainer."""
    scores = judged_metrics(trainer.all_parts().values())
    console = Console(stderr=show_on == "stderr")
    return make_display(kind, facts, trainer.plan(), console=console, scores=scores)


def plot_of(run_dir: str | None, metrics: Sequence[str]) -> Plotted:
    """Return the curves of a run in this directory."""
    # Imported when used: the report's charts are of no use while a run trains.
    from ludus.show.plot import plot

    if run_dir is None:
        raise RunError("this run has no directory, so nothing of it was logged that can be drawn")
    return plot(run_dir, metric=metrics)
