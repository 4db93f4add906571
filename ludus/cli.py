"""The `ludus` command. Each command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ludus.core.errors import LudusError


class Commands(TyperGroup):
    """Runs a command so that a user's mistake is one sentence and exit code 1, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            done = super().invoke(ctx)
            print(end="", flush=True)
            return done
        except LudusError as error:
            code, text = 1, str(error)
        except KeyboardInterrupt:
            code, text = 130, "stopped at once; a run can be resumed from its last checkpoint"
        except BrokenPipeError:
            # Whoever read our output has seen enough.
            _drop_output()
            raise typer.Exit(128 + signal.SIGPIPE) from None
        except OSError as error:
            _drop_output()
            code, text = 1, f"{error.filename or 'the system'}: {error.strerror or error}"
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            problem = " ".join(str(error).split())[:200]
            code, text = 1, f"out of memory; make the model or the batch smaller ({problem})"
        print(f"ludus: {text}", file=sys.stderr)
        raise typer.Exit(code)


def _drop_output() -> None:
    """Give up what can no longer be written, or python would complain of it once more at its exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _is_out_of_memory(error: Exception) -> bool:
    # Torch has a type of its own for this on a GPU, and none elsewhere; it may not be imported here.
    said = ("can't allocate memory", "Storage size calculation overflowed")
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_named or any(words in str(error) for words in said)


app = typer.Typer(
    cls=Commands,
    name="ludus",
    help="Train anything that learns, and never lose a run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A complete YAML file, or - for standard input.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Change a key: optimizer.beta1=0.8"),
]
RunDir = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, such as runs/digits.")]
Plugin = Annotated[
    list[str] | None, typer.Option("--plugin", help="A module of your own that registers kinds.")
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object, and nothing else, on standard output."),
]
Root = Annotated[str, typer.Option("--root", help="The directory that holds all runs.")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from ludus.version import VERSION

        print(f"ludus {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Train anything that learns, and never lose a run."""


def _load(plugins: list[str] | None) -> None:
    from ludus.registry import load_plugin

    if plugins:
        # A user's module lies where the user stands.
        sys.path.insert(0, str(Path.cwd()))
    for plugin in plugins or []:
        load_plugin(plugin)


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help="A trainer kind, such as supervised.")],
    plugin: Plugin = None,
) -> None:
    """Print a complete, commented config: ludus new supervised > my.yaml"""
    from ludus.registry import example_path

    _load(plugin)
    print(example_path(kind).read_text(encoding="utf-8"), end="")


@app.command()
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    root: Root = "runs",
    run: Annotated[
        str | None, typer.Option("--run", help="The run's name; else the config's.")
    ] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Train, with a live display; Ctrl-C saves and stops."""
    from ludus.build import build_trainer
    from ludus.config import read_config

    _load(plugin)
    trainer = build_trainer(read_config(config, overrides or []))
    result = trainer.fit(root=root, name=run, show_on="stderr" if json else "stdout")
    _tell_result(result, as_json=json, is_silent=trainer.config.settings.display == "none")


@app.command()
def resume(
    run: RunDir,
    overrides: Overrides = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Go on even where the bytes may differ.")
    ] = False,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Go on after any interruption; a length may be raised: ludus resume RUN max_epochs=90"""
    from ludus.build import rebuild_trainer
    from ludus.run.directory import last_ending

    _load(plugin)
    # A run given as `.` has a name all the same: that of its directory.
    path = run if Path(run).name not in ("", "..") else os.path.abspath(run)
    trainer, storage = rebuild_trainer(path, overrides or [])
    before = last_ending(storage) or {}
    result = trainer.fit(
        root=str(storage.root.parent),
        name=storage.root.name,
        resume="approximate" if approximate else "exact",
        show_on="stderr" if json else "stdout",
    )
    has_moved = before.get("counters") != {k: v for k, v in result.counters.items() if v}
    if before.get("event") in ("finished", "stopped") and not has_moved:
        text = "this run had ended already; raise its length to go on, as in max_epochs=90"
        if before["event"] == "stopped":
            text = "this run was stopped for good and does not go on; start a new one"
        print(f"ludus: {text}", file=sys.stderr)
    _tell_result(result, as_json=json, is_silent=trainer.config.settings.display == "none")


def _tell_result(result: Any, *, as_json: bool, is_silent: bool) -> None:
    from ludus import commands

    if as_json:
        print(commands.result_json(result))
    else:
        commands.print_result(result, is_silent=is_silent)


@app.command()
def plan(config: ConfigFile, overrides: Overrides = None, plugin: Plugin = None) -> None:
    """Print what a config would do, as a tree, and do none of it."""
    from ludus import commands
    from ludus.config import read_config

    _load(plugin)
    print(commands.render_plan(read_config(config, overrides or [])))


@app.command()
def explain(
    config: ConfigFile,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]... [KEY=VALUE]...", help="Keys to explain; all if none."),
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Say what every key means, its value and where it came from."""
    from ludus import explaining

    _load(plugin)
    keys = [word for word in words or [] if "=" not in word]
    explaining.explain(config, keys, [word for word in words or [] if "=" in word])


@app.command()
def migrate(
    config: ConfigFile,
    write: Annotated[
        bool, typer.Option("--write", help="Replace the file; else print it.")
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Bring an older config file to the current version."""
    from ludus import commands

    _load(plugin)
    commands.migrate_file(Path(config), write=write)


@app.command(name="eval")
def evaluate(run: RunDir, plugin: Plugin = None, json: AsJson = False) -> None:
    """Evaluate the best model of a run on its held-out data."""
    from ludus import commands

    _load(plugin)
    commands.evaluate_run(run, as_json=json)


@app.command()
def runs(root: Root = "runs", json: AsJson = False) -> None:
    """List runs and how they ended."""
    from ludus import commands

    commands.list_runs(Path(root), as_json=json)


@app.command()
def report(
    run: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="One run, or several to compare.")
    ],
    out: Annotated[str | None, typer.Option("--out", help="Where to write the page.")] = None,
) -> None:
    """Write one self-contained HTML page: curves, best model, config, environment, exactness."""
    from ludus.run.report import write_report

    path = write_report([Path(one) for one in run], Path(out) if out else None)
    print(path)


@app.command()
def verify(
    config: ConfigFile,
    overrides: Overrides = None,
    kills: Annotated[int, typer.Option("--kills", min=1, help="How often to kill the run.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="Chooses the instants.")] = 0,
    plugin: Plugin = None,
) -> None:
    """Prove exact resume on your own config: kill it, resume it, compare every byte."""
    from ludus.testing.verify import verify_config

    _load(plugin)
    if not verify_config(config, overrides or [], num_kills=kills, seed=seed, plugins=plugin or []):
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Say what this machine can do."""
    from ludus.doctor import examine

    if not examine():
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    app(prog_name="ludus")


if __name__ == "__main__":
    main()
