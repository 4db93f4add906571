"""The `ludus` application: error handling, and the arguments and options that commands share."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ludus.cli import family_commands
from ludus.config.registry import load_installed, load_plugin
from ludus.core.errors import LudusError, is_out_of_memory
from ludus.show.terminal import say, warn

_ORDER = (
    "new", "train", "resume", "plan", "explain", "eval", "play", "export", "runs", "report", "compare",
    "verify", "migrate", "doctor",
)  # fmt: skip


def _place(command: str) -> int:
    """Return the position of a command in the help; unlisted ones come last."""
    return _ORDER.index(command) if command in _ORDER else len(_ORDER)


def _is_found(command: str, own: list[str]) -> bool:
    """Return whether a family's command can be imported; say so if it cannot."""
    try:
        return family_commands.find(command, own) is not None
    except LudusError as error:
        warn(f"ludus: {error}")
        return False


class Commands(TyperGroup):
    """Runs a command so that a user's mistake is one sentence and exit code 1, never a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order in which people need them, then those of families."""
        own = sorted(super().list_commands(ctx), key=_place)
        try:
            load_installed()
            names = family_commands.names(own)
        except LudusError as error:
            # Help is most needed when something is broken.
            warn(f"ludus: {error}")
            return own
        return [*own, *(name for name in names if _is_found(name, own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of ludus, or one from a family's folder."""
        own = super().get_command(ctx, cmd_name)
        return own or family_commands.find(cmd_name, super().list_commands(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; for a plugin's command, load its --plugin, wherever it is on the line, first."""
        if args and super().get_command(ctx, args[0]) is None:
            plugins, args = family_commands.parted(args)
            load(plugins)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the requested command."""
        try:
            done = super().invoke(ctx)
            print(end="", flush=True)
            return done
        except LudusError as error:
            code, text = 1, str(error)
        except KeyboardInterrupt:
            code, text = 130, "stopped at once; a run can be resumed from its last checkpoint"
        except BrokenPipeError:
            # The reader of the output has closed the pipe.
            _drop_output()
            raise typer.Exit(128 + signal.SIGPIPE) from None
        except OSError as error:
            _drop_output()
            if error.errno == errno.EIO and error.filename is None:
                # The terminal has been closed: no message can be shown.
                raise typer.Exit(128 + signal.SIGHUP) from None
            code, text = 1, f"{error.filename or 'the system'}: {error.strerror or error}"
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            problem = " ".join(str(error).split())[:200]
            code, text = 1, f"out of memory; make the model or the batch smaller ({problem})"
        warn(f"ludus: {text}")
        raise typer.Exit(code)


def _drop_output() -> None:
    """Drop output that can no longer be written; otherwise Python reports it again at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


app = typer.Typer(
    cls=Commands,
    name="ludus",
    help="Train anything that learns, and never lose a run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _named_run(run: str) -> str:
    """Return the location of a run that may be called by its name."""
    from ludus.store.places import named_run

    return named_run(run)


ConfigFile = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A YAML file, the name of a preset such as ppo, or - for standard input.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Change a key: optimizer.beta1=0.8"),
]
RunDir = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        callback=_named_run,
        help="A run directory, such as runs/digits, or the name of a run below runs.",
    ),
]
Plugin = Annotated[
    list[str] | None, typer.Option("--plugin", help="Your module that registers kinds.")
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object, and nothing else, on standard output."),
]


def _lasting(root: str) -> str:
    """Refuse a root whose runs would vanish when the command ends."""
    if root.startswith("memory://"):
        raise LudusError(
            f"--root {root} is the memory of this command, and a run in it is gone when the command ends;"
            " give a directory, or s3://bucket/runs (a script may use fit(root='memory://...'))"
        )
    return root


Root = Annotated[
    str, typer.Option("--root", callback=_lasting, help="The directory that holds all runs.")
]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from ludus.version import VERSION

        say(f"ludus {VERSION}")
        raise typer.Exit


def _load_first(plugins: list[str] | None) -> list[str] | None:
    """Load plugins before help is printed; errors are reported here, because no command runs yet."""
    try:
        load(plugins)
    except LudusError as error:
        warn(f"ludus: {error}")
        raise typer.Exit(1) from None
    return plugins


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin", callback=_load_first, is_eager=True, help="A module that adds commands."
        ),
    ] = None,
) -> None:
    """Train anything that learns, and never lose a run."""


def load(plugins: list[str] | None) -> None:
    """Import the modules given with --plugin, and refuse a command that is declared twice."""
    if not plugins:
        return
    # A user's module is in the current directory.
    sys.path.insert(0, str(Path.cwd()))
    for plugin in plugins:
        load_plugin(plugin)
    family_commands.names(_ORDER)
