"""Commands of `ludus`. Each imports what it needs when it runs, so that help is fast."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ludus.cli import run_commands  # noqa: F401 - its commands are part of the app
from ludus.cli.app import AsJson, ConfigFile, Overrides, Plugin, Root, RunDir, app, load
from ludus.core.errors import LudusError
from ludus.process.standard_streams import fill_standard_streams
from ludus.show.terminal import pass_on, say, tell, tell_waiting

if TYPE_CHECKING:
    from ludus.core.runtime import Result


@app.command()
def new(
    kind: Annotated[
        str | None,
        typer.Argument(help="A trainer kind, such as supervised, or another file; all if none."),
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Print a complete, commented config: ludus new supervised > my.yaml"""
    from ludus.cli.examples import list_examples
    from ludus.config.registry import example_path, section_files

    load(plugin)
    if kind is None:
        list_examples()
    elif kind in section_files():
        pass_on(section_files()[kind].read_text(encoding="utf-8"))
    else:
        pass_on(example_path(kind).read_text(encoding="utf-8"))


@app.command()
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    root: Root = "runs",
    run: Annotated[
        str | None,
        typer.Option("--run", help="The run's name; else the config's, numbered if it is taken."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same as seed=N.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="Train a group of runs, one for each seed: 0-4, or 0,2,5."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="With --seeds: how many runs train at once; else 1."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="RUN[:MODEL]", help="Start from its weights: best, last, or a model."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Count requests, tokens and cost of a run of text; ask nothing."
        ),
    ] = False,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Train, with a live display; Ctrl-C saves and stops."""
    tell_waiting(f"loading torch and {config}")
    from ludus.config.base import read_config
    from ludus.session.build import build_trainer

    load(plugin)
    if dry_run:
        _check_dry_run(seeds, jobs, run)
        _estimate(config, _changes(overrides, seed))
        return
    if seeds is not None:
        from ludus.cli.seeds import SeedsCommand

        SeedsCommand(
            config, overrides or [], root, run, seeds, jobs, plugin or [], has_seed=seed is not None,
            start=start,
        ).train(as_json=json)  # fmt: skip
        return
    if jobs is not None:
        raise LudusError("--jobs is for several runs; add --seeds, as in --seeds 0-4")
    changes = _changes(overrides, seed)
    trainer = build_trainer(read_config(config, changes, tell=tell, start=start))
    if run is None:
        run = _numbered(root, trainer.config.name)
    result = trainer.fit(root=root, name=run, show_on="stderr" if json else "stdout")
    _print_result(result, as_json=json, is_silent=trainer.config.settings.display == "none")


def _changes(overrides: list[str] | None, seed: int | None) -> list[str]:
    return [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]


def _check_dry_run(*given: object) -> None:
    if any(one is not None for one in given):
        raise LudusError(
            "--dry-run counts what one run would ask; leave out --seeds, --jobs and --run"
        )


def _estimate(config: str, changes: list[str]) -> None:
    """Print what a run would ask of a paid service."""
    from ludus.cli.able import that_estimates
    from ludus.config.base import read_config
    from ludus.session.build import build_trainer
    from ludus.session.prepared import prepare

    trainer = build_trainer(read_config(config, changes, tell=tell))
    that_estimates(trainer)
    try:
        for line in that_estimates(prepare(trainer)).estimate():
            say(line)
    finally:
        trainer.close()


def _numbered(root: str, name: str) -> str:
    """Return a name that no run and no group has yet, and say so if it is not the config's."""
    from ludus.store.directory import run_storage, way_to_resume
    from ludus.store.groups import free_name
    from ludus.store.places import below

    free = free_name(root, name)
    if free != name:
        taken = below(root, name)
        what = f"{name} is a group of runs"
        if run_storage(root, name).exists("run.json"):
            what = f"{taken} is a run already (`{way_to_resume(taken)}`)"
        tell(f"{what}; this one is {below(root, free)}")
    return free


@app.command()
def resume(
    run: RunDir,
    overrides: Overrides = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Resume even if the bytes may differ.")
    ] = False,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Resume after any interruption; length, rate, schedule and target may change: max_epochs=90"""
    tell_waiting(f"loading torch and {run}")
    from ludus.session.build import rebuild_trainer
    from ludus.store.directory import last_ending, length_of
    from ludus.store.places import below, parted

    load(plugin)
    trainer, storage = rebuild_trainer(below(*parted(run)), overrides or [], tell=tell)
    before = last_ending(storage) or {}
    trainer.set_storage(storage)
    result = trainer.fit(
        resume="approximate" if approximate else "exact",
        show_on="stderr" if json else "stdout",
    )
    has_moved = before.get("counters") != {k: v for k, v in result.counters.items() if v}
    if before.get("event") in ("finished", "stopped") and not has_moved:
        key, value = length_of(trainer.config)
        text = f"this run has already ended; raise its length to continue, as in {key}={2 * value}"
        if before["event"] == "stopped":
            by = trainer.run.stop_key
            remedy = f"change {by} to continue, or" if by else "to train on,"
            place = f"--from {storage.place}:last"
            text = f"this run was stopped; {remedy} start a new one from its weights: {place}"
        tell(text)
    _print_result(result, as_json=json, is_silent=trainer.config.settings.display == "none")


def _print_result(result: Result, *, as_json: bool, is_silent: bool) -> None:
    from ludus.cli import tasks

    if as_json:
        pass_on(tasks.result_json(result) + "\n")
    else:
        tasks.print_result(result, is_silent=is_silent)


@app.command()
def plan(config: ConfigFile, overrides: Overrides = None, plugin: Plugin = None) -> None:
    """Print what a config would do, as a tree, and do none of it."""
    from ludus.cli import tasks

    load(plugin)
    say(tasks.plan_of(config, overrides or []))


@app.command()
def explain(
    config: ConfigFile,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]... [KEY=VALUE]...", help="Keys to explain; all if none."),
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Describe every key, its value and where it came from."""
    from ludus.cli import explain

    load(plugin)
    keys = [word for word in words or [] if "=" not in word]
    explain.explain(config, keys, [word for word in words or [] if "=" in word])


@app.command()
def migrate(
    config: ConfigFile,
    write: Annotated[
        bool, typer.Option("--write", help="Replace the file; else print it.")
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Bring an older config file to the current version."""
    from ludus.cli import tasks

    load(plugin)
    tasks.migrate_file(Path(config), write=write)


@app.command()
def verify(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG|SCRIPT.py", help="A YAML file, or a script with a fit.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]... | -- [ARGUMENT]...",
            help="Change a key of a config, or the arguments of a script.",
        ),
    ] = None,
    kills: Annotated[int, typer.Option("--kills", min=1, help="How often to kill the run.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="Chooses the instants.")] = 0,
    plugin: Plugin = None,
) -> None:
    """Prove exact resume on your own config or script: kill it, resume it, compare every byte.

    It is run many times, each with its own journals: effects outside the run happen each time. A script's
    runs are kept in a temporary place, and its fit resumes where its run was killed.
    """
    from ludus.testing.verify import verify_config, verify_script

    load(plugin)
    prove = verify_script if config.endswith(".py") else verify_config
    if not prove(config, overrides or [], num_kills=kills, seed=seed, plugins=plugin or []):
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Report what this machine can do."""
    from ludus.cli.doctor import examine

    if not examine():
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    fill_standard_streams()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_to_user(
            message: Warning | str, category: type[Warning], *place: Any, **more: Any
        ) -> None:
            """Show a warning meant for users as a sentence, without the line of code it came from."""
            if issubclass(category, UserWarning):
                tell(message)
            else:
                show(message, category, *place, **more)

        warnings.showwarning = show_to_user
        app(prog_name="ludus")
