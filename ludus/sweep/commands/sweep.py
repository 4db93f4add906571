"""`ludus sweep FILE`: search for the best values of some keys of a config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from ludus.sweep.sweeper import Sweeper

Stream = Literal["stdout", "stderr"]


def sweep(
    config: Annotated[
        str, typer.Argument(metavar="FILE", help="A complete YAML file: `ludus new sweep`.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Change a key: budget.max_trials=50"),
    ] = None,
    root: Annotated[
        str, typer.Option("--root", help="The directory that holds all sweeps.")
    ] = "sweeps",
    best: Annotated[
        bool, typer.Option("--best", help="Train the best config so far with more seeds.")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="With --best: the seeds to train with, such as 10-14."),
    ] = None,
    num_seeds: Annotated[
        int | None,
        typer.Option(
            "--num-seeds", min=1, help="With --best: so many seeds that no trial has had (5)."
        ),
    ] = None,
    export_optuna: Annotated[
        str | None,
        typer.Option(
            "--export-optuna", metavar="STUDY.DB", help="Write the trials for Optuna's dashboard."
        ),
    ] = None,
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", help="Your module that registers kinds.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object, and nothing else, on standard output."),
    ] = False,
) -> None:
    """Search for the best values of some keys; Ctrl-C saves, and the same command goes on."""
    from ludus.config.registry import load_plugin
    from ludus.core.errors import ConfigError
    from ludus.sweep.result_lines import seeds_of, tell_best
    from ludus.sweep.sweeper import Sweeper

    for name in plugin or []:
        load_plugin(name)
    wanted = seeds_of(seeds, num_seeds, is_best=best)
    sweeper = Sweeper(config, overrides or [])
    show_on: Stream = "stderr" if json else "stdout"
    if not best:
        _search(sweeper, root, export_optuna, show_on=show_on)
        return
    if export_optuna is not None:
        raise ConfigError("--best trains one config; leave out --export-optuna, or --best")
    tell_best(sweeper.train_best(wanted, root=root, show_on=show_on), as_json=json)


def _search(sweeper: Sweeper, root: str, export: str | None, *, show_on: Stream) -> None:
    """Search, print the result, and write the trials for Optuna's dashboard if that was asked."""
    from ludus.show.terminal import tell
    from ludus.sweep.result_lines import tell_result

    if export is not None:
        sweeper.check_export(export)
    result = sweeper.sweep(root=root, show_on=show_on)
    if export is not None:
        sweeper.export_optuna(Path(export), root=root)
        tell(f"{export} holds the trials; `optuna-dashboard sqlite:///{export}` shows them")
    tell_result(result, sweeper.way_to_go_on(root), as_json=show_on == "stderr")
