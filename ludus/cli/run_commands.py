"""Commands on existing runs: evaluate, film, export, list, report, compare."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ludus.cli.app import AsJson, Plugin, Root, RunDir, app, load
from ludus.core.errors import LudusError
from ludus.show.report.band import Band
from ludus.show.terminal import say, tell, tell_waiting

Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="best|best-SCORE|last|PATH",
        help="Which weights: the best, the best by a score, the last, or the directory of a model.",
    ),
]


class ExportFormat(StrEnum):
    """The format that `ludus export` writes."""

    NUMPY = "numpy"
    TORCH = "torch"
    ONNX = "onnx"


class Take(StrEnum):
    """The value of a run that `ludus compare` takes."""

    BEST = "best"
    LAST = "last"


class Mode(StrEnum):
    """The direction in which a metric is better."""

    MAX = "max"
    MIN = "min"


Script = Annotated[
    str | None,
    typer.Option(
        "--script",
        metavar="'train.py [ARGUMENT]...'",
        help="The script that began the run, if it gave the network, the data or the env.",
    ),
]


@app.command(name="eval")
def evaluate(
    run: RunDir,
    model: Model = "best",
    episodes: Annotated[
        int | None, typer.Option("--episodes", min=1, help="How many; else as the config says.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Other episodes; else by the run's own seed."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="KEY=VALUE",
            help="Measure on other data: a changed key of the section data, such as path=new.csv.",
        ),
    ] = None,
    script: Script = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Evaluate a model of a run on held-out data, or in episodes not used for training or selection."""
    tell_waiting(f"loading torch and {run}")
    from ludus.cli import tasks

    load(plugin)
    tasks.evaluate_run(
        run, as_json=json, model=model, episodes=episodes, seed=seed, data=data or [], script=script
    )


@app.command()
def play(
    run: RunDir,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Where to write the film; else RUN/play.gif.")
    ] = None,
    episode: Annotated[int, typer.Option("--episode", min=0, help="Which episode to film.")] = 0,
    fps: Annotated[float, typer.Option("--fps", min=1, max=50, help="Frames per second.")] = 25.0,
    people: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="AGENT", help="Speak for this agent yourself (runs of text)."),
    ] = None,
    model: Model = "best",
    script: Script = None,
    plugin: Plugin = None,
) -> None:
    """Film a policy of a run, by default the best: an animated GIF of one episode; games are printed."""
    tell_waiting(f"loading torch and {run}")
    from ludus.cli import tasks

    load(plugin)
    place = Path(out) if out else None
    if people:
        tasks.play_with_people(run, people, episode=episode, model=model, script=script)
        return
    film = tasks.play_run(run, place, episode=episode, fps=fps, model=model, script=script)
    if film is not None:
        say(film)


@app.command()
def export(
    run: RunDir,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to write; else RUN/policy, RUN/program.pt2 or RUN/program.onnx.",
        ),
    ] = None,
    format_: Annotated[
        ExportFormat,
        typer.Option(
            "--format", help="numpy: without torch; torch: a torch.export program; onnx: ONNX."
        ),
    ] = ExportFormat.NUMPY,
    model: Model = "best",
    script: Script = None,
    plugin: Plugin = None,
) -> None:
    """Write what a run trained, by default the best, to use it without ludus: by NumPy, torch or ONNX."""
    tell_waiting(f"loading torch and {run}")
    from ludus.cli.exporting import export_run

    load(plugin)
    place = Path(out) if out else None
    say(export_run(run, place, to=format_.value, model=model, script=script, tell=tell))


@app.command()
def runs(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME | COLUMN=VALUE]...",
            help="Which runs: small-*, kind=ppo, 'score>400', tag=good, 'learning_rate<0.01'.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort", metavar="COLUMN", help="score, started, name, ..., or a config key."
        ),
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Tag these runs.")] = None,
    untag: Annotated[list[str] | None, typer.Option("--untag", help="Remove a tag.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete these runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    root: Root = "runs",
    json: AsJson = False,
) -> None:
    """List runs and how they ended; choose, sort, tag and delete them."""
    from ludus.cli import listing, run_changes

    wanted = listing.Wanted(words or (), sort, reverse)
    if delete and (tag or untag):
        raise LudusError("runs are deleted or tagged; leave out --delete, or --tag and --untag")
    if yes and not delete:
        raise LudusError("--yes is for --delete; leave it out")
    if delete:
        run_changes.delete_runs(root, wanted, is_sure=yes, as_json=json)
    elif tag or untag:
        run_changes.tag_runs(root, wanted, tag or (), untag or (), as_json=json)
    else:
        listing.list_runs(root, as_json=json, wanted=wanted)


@app.command()
def report(
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="One run, several to compare, or the name of a group."
        ),
    ],
    out: Annotated[str | None, typer.Option("--out", "-o", help="Where to write the page.")] = None,
    band: Annotated[
        Band,
        typer.Option("--band", help="The area around the mean of runs that differ in the seed."),
    ] = Band.STDERR,
    root: Root = "runs",
    plugin: Plugin = None,
) -> None:
    """Write one self-contained HTML page: curves, best model, config, environment, exactness."""
    from ludus.show.report.page import write_report
    from ludus.store.groups import runs_called

    load(plugin)
    places = [place for word in run for place in runs_called(word, root)]
    path = write_report(places, Path(out) if out else None, band=band)
    say(path)


_SIDE = "A run, a group, or several of them with commas between."


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help=_SIDE)],
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="What is compared; else the score that both are judged by."),
    ] = None,
    take: Annotated[
        Take, typer.Option("--take", help="The best value of each run, or its last.")
    ] = Take.BEST,
    mode: Annotated[
        Mode | None, typer.Option("--mode", help="Whether higher is better; else as declared.")
    ] = None,
    root: Root = "runs",
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Compare two runs or groups: configs, versions, scores, and how likely A is better."""
    from ludus.cli.compare import print_comparison

    load(plugin)
    print_comparison(
        a,
        b,
        root=root,
        metric=metric,
        take=take.value,
        mode=None if mode is None else mode.value,
        as_json=json,
    )
