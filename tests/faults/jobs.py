"""What children of the warm process do; each is called by its name with arguments from JSON."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import os
import resource
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ludus
import ludus.cli.commands
from ludus.cli import tasks
from ludus.cli.listing import list_runs
from ludus.core.errors import LudusError
from ludus.data.sources import _table
from ludus.session import session
from ludus.session.build import rebuild_trainer
from ludus.show.report.page import write_report
from ludus.store import checkpoint
from ludus.store.lock import RunLock
from ludus.testing import script_victim, subjects, victim  # noqa: F401
from tests import tables
from tests.faults.small_run import train
from tests.faults.victims import Forking
from tests.process.warm_children import ForkedChildren

# Imported here so that no child has to; the last ones are not installed everywhere.
_IMPORTED = (
    "ludus.session.session", "ludus.judge.worker", "ludus.envs.worker_main", "gymnasium.wrappers",
    "gymnasium.envs.classic_control", "sklearn.datasets", "torch._inductor.config", "torch.utils.tensorboard",
    "ludus.nn.models.cnn", "ludus.nn.models.mlp", "ludus.nn.optimizers._table", "ludus.nn.schedules._table",
    "ludus.supervised.trainers.supervised", "ludus.rl.agents.dqn", "ludus.rl.networks.mlp",
    "ludus.envs.kinds.gymnasium", "ludus.active.programs.stream", "ludus.active.commands.stream",
    "ludus.active.stream.retrainer", "ludus.session.loggers.tensorboard", "ludus.sweep.programs.sweep",
    "ludus.sweep.programs.population", "ludus.sweep.engines.inline", "ludus.sweep.seed_group",
    "ludus.store.deletion", "s3fs", "ludus.store.cloud.remote", "optuna", "ludus.sweep.samplers._optuna",
    "cmaes",
)  # fmt: skip
for _name in _IMPORTED:
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(_name)
# What every run reads is read before any fork.
_table._scikit_learn = tables.kept
for _kind in ("digits", "wine"):
    tables.read(_kind)
session.git_state = functools.cache(session.git_state)
session.git_state()

RUN = "run"


def go(root: str) -> None:
    """Begin the small run or go on with it, to its end."""
    train(Path(root), RUN)


def text_run(root: str, changes: dict[str, Any]) -> None:
    """Train a small run of text on tables, or go on with it."""
    from tests.text.trainers.runs import tiny_ei, trained

    trained(tiny_ei(**changes), Path(root))


def list_points(root: str) -> None:
    """Run to the end and print each point of the writer as it is passed."""
    checkpoint.passed = lambda point: print(point, flush=True)
    train(Path(root), RUN)


def die_at(root: str, point: str, count: int) -> None:
    """Run until the writer passes a point for the nth time, and die there by SIGKILL."""
    seen = 0

    def passed(name: str) -> None:
        nonlocal seen
        seen += name == point
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.passed = passed
    train(Path(root), RUN)


def use_hostile_run(path: str) -> None:
    """Resume, evaluate, list and report a run; print how each went as one line of JSON."""
    ways: dict[str, Callable[[], Any]] = {
        "eval": lambda: tasks.evaluate_run(path, as_json=False),
        "runs": lambda: list_runs(Path(path).parent, as_json=False),
        "report": lambda: write_report([Path(path)]),
        "resume": lambda: _resume(path),
    }
    found = {}
    for name, use in ways.items():
        # The kernel forgets the peak of memory when told to.
        Path("/proc/self/clear_refs").write_text("5")
        before, start, cpu = _peak_megabytes(), time.monotonic(), time.process_time()
        error: BaseException | None = None
        try:
            use()
        except Exception as caught:
            error = caught
        found[name] = {
            "error": None if error is None else f"{type(error).__name__}: {error}",
            "is_typed": error is None or isinstance(error, LudusError),
            "seconds": time.monotonic() - start,
            "cpu_seconds": time.process_time() - cpu,
            "megabytes": _peak_megabytes() - before,
        }
    print("\n" + json.dumps(found))


def _resume(path: str) -> None:
    trainer, storage = rebuild_trainer(path, [])
    trainer.fit(root=str(storage.root.parent), name=storage.root.name, resume="exact")


def _peak_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def command(
    words: list[str],
    seconds_a_step: float = 0.0,
    sleep_at: int = 0,
    sleep_seconds: float = 60.0,
    ignored: Sequence[int] = (),
    terminal: str | None = None,
) -> None:
    """Do what `ludus WORDS...` does, with slow steps; at one step, sleep for long, or until killed.

    Some signals may be ignored from the start, and a terminal may be the one that controls it.
    """
    # The tests themselves may have been started under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    if terminal is not None:
        os.setsid()
        opened = os.open(terminal, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(opened, fd)
        os.close(opened)

    def after_step(trainer: Any) -> None:
        time.sleep(seconds_a_step)
        if trainer.run.counters["opt_steps"] == sleep_at > 0:
            print("asleep", flush=True)
            time.sleep(sleep_seconds)

    ludus.Trainer.after_step = after_step
    sys.argv = ["ludus", *words]
    ludus.cli.commands.main()


def plain_command(words: list[str], cwd: str, stdin: str, variables: dict[str, str]) -> None:
    """Do what `ludus WORDS...` does in a directory, with the variables of the tests."""
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    os.chdir(cwd)
    if "REAL_VICTIMS" not in variables:
        ForkedChildren().serve_children()
        if words[0] == "verify":
            subjects.run_child = Forking().run_child
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    # A line is there for whoever waits for it as soon as it is printed.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv = ["ludus", *words]
    ludus.cli.commands.main()


def script(
    path: str, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> None:
    """Do what `python PATH ARGUMENTS...` does in the script's directory."""
    os.environ.update(variables or {})
    ForkedChildren().serve_children()
    sys.argv = [path, *arguments]
    os.chdir(Path(path).parent)
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def be_victim(words: list[str], variables: dict[str, str]) -> None:
    """Do what `python -m ludus.testing.victim WORDS...` does, with the variables of the tests."""
    os.environ.update(variables)
    tempfile.tempdir = None  # what it is was found before the fork
    ForkedChildren().serve_children()
    sys.argv = ["victim", *words]
    victim.main()


def be_module(module: str, words: list[str], cwd: str, variables: dict[str, str]) -> None:
    """Do what `python -m MODULE WORDS...` does in a directory, with the variables of the tests."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(cwd)
    ForkedChildren().serve_children()
    sys.argv = [module, *words]
    importlib.import_module(module).main()


def hold(path: str, child_too: bool = False) -> None:
    """Hold the lock of a run until killed, with a forked child beside it if asked."""
    with RunLock(Path(path)):
        child = os.fork() if child_too else 0
        if child or not child_too:
            print(f"holding {child}", flush=True)
        time.sleep(60)


def fill_disk(root: str, limit: int, is_for_good: bool = False) -> None:
    """Run with files limited to some size from the first epoch to the second, or to the end."""

    def each_epoch(trainer: Any) -> None:
        if trainer.epoch == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        elif trainer.epoch == 1 and not is_for_good:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

    try:
        train(Path(root), RUN, each_epoch=each_epoch)
    except LudusError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print(f"{type(error).__name__}: {error}")
        sys.exit(3)


def sweep(
    folder: str,
    data: dict[str, Any],
    at: str | None,
    count: int,
    wrong: str,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Go on with a sweep until it is killed, or to its end; something of it may be done wrong."""
    os.environ.update(variables or {})
    importlib.import_module("tests.sweep.victim").live(folder, data, at, count, wrong)


def seeds(root: str, data: dict[str, Any], at: str | None, count: int, jobs: int = 1) -> None:
    """Go on with a group of runs until it is killed, or to its end."""
    importlib.import_module("tests.sweep.victim").live_with_seeds(root, data, at, count, jobs)


def delete(path: str, count: int) -> None:
    """Delete a run, and be killed before the nth file."""
    from ludus.cli.run_changes import is_output
    from ludus.store import deletion

    unlink, seen = deletion._unlink, [0]

    def counted(file: Path) -> None:
        seen[0] += 1
        if seen[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        unlink(file)

    deletion._unlink = counted
    deletion.delete_run(path, is_output)
