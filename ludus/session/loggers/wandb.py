"""Log to Weights & Biases: one run there for each run here, with the same id after every resume."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.config.optional import check_installed
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.session.record import AXES
from ludus.session.remote import wandb_files
from ludus.session.remote.log_line import LogLine, as_png, unicode
from ludus.session.remote.logged_run import LoggedEnd, LoggedRun
from ludus.session.remote.sender import Refused, Service, Unreachable
from ludus.session.remote.service_logger import ServiceLogger
from ludus.store.local import LocalStorage
from ludus.store.storage import Storage

_EXIT_CODES = {"finished": 0, "stopped": 0, "failed": 1}
_KILLED = 255
"""Exit code of a run that was interrupted, as W&B counts it."""
_PART_TO_BEGIN = 0.5
"""Part of the time to wait after which a run is begun offline."""
_FORBIDDEN = "/\\#?%:"
_MAX_PROJECT = 128
_MAX_TAG = 64
_REFUSALS = re.compile(
    r"\b(401|403|404)\b|permission|denied|not found|unauthori|not logged|invalid|api.?key", re.I
)


@register("logger", "wandb")
class Wandb(ServiceLogger["Wandb.Config"]):
    """Sends metrics, the config, texts, histograms, images and the best model to W&B."""

    class Config(StrictConfig):
        """Where the run is shown, and what is sent."""

        kind: Literal["wandb"]
        """Always wandb."""
        project: str
        """Name of the project; it is created if there is none."""
        entity: str | None
        """Team or user who owns the project; null takes your default."""
        mode: Literal["online", "offline"]
        """online sends while training; offline keeps all in the run directory, for `wandb sync`."""
        tags: list[str]
        """Tags of the run in W&B, besides those it has here."""
        best_model: bool
        """Whether the best model is uploaded as an artifact when the run ends."""
        wait_seconds: PositiveFloat
        """How long the beginning and the end of a run wait for the service at most."""

        def problems(self) -> Iterator[str]:
            is_plain = not any(letter in self.project for letter in _FORBIDDEN)
            if not (is_plain and 0 < len(self.project.strip()) <= _MAX_PROJECT):
                yield (
                    f"project {self.project!r} cannot name a project of W&B; use up to {_MAX_PROJECT}"
                    f" characters, none of {' '.join(_FORBIDDEN)}"
                )
            for tag in self.tags:
                if not 0 < len(tag) <= _MAX_TAG:
                    yield f"tags holds {tag!r}; W&B takes tags of 1 to {_MAX_TAG} characters"

    @staticmethod
    def check(config: Config) -> None:
        """Raise LudusError if W&B is not installed, or has no API key to send with."""
        check_installed("wandb", key="the logger 'wandb'", extra="wandb")
        if config.mode == "online":
            with _hooks_kept():
                _log_in()

    def _service(self, run: LoggedRun) -> Service:
        return WandbRun(self._config, run, self._storage)


class WandbRun:
    """One run in W&B.

    W&B's own process writes what it is given to a file before it sends it. A line's number is its step, so
    that file, or the service, says how many lines have arrived.
    """

    def __init__(self, config: Wandb.Config, run: LoggedRun, storage: Storage) -> None:
        self._config, self._run, self._storage = config, run, storage
        self.label = f"W&B project {config.project}"
        elsewhere = Path(os.environ.get("WANDB_DIR", "."))
        self._folder = storage.root if isinstance(storage, LocalStorage) else elsewhere
        self._notes: list[str] = []
        self._wandb: Any = None
        self._there: Any = None
        self._has_axis = False

    def connect(self) -> int:
        """Begin a process of W&B for this run, and return the number of the last line it has."""
        with _hooks_kept():
            is_online = self._config.mode == "online"
            self._wandb = wandb = _log_in() if is_online else _quiet_wandb()
            position = wandb_files.last_step(self._folder, self._run.run_id)
            try:
                self._there = self._start("online" if is_online else "offline")
            except (wandb.errors.CommError, wandb.errors.UsageError, TimeoutError) as error:
                self._there = self._start_offline(error)
                is_online = False
        if is_online:
            position = max(self._there.starting_step - 1, 0)
            wandb_files.mark_synced(self._folder, self._run.run_id)
        for name in self._run.counter_names:
            self._there.define_metric(name, hidden=True)
        return position

    def _start_offline(self, error: Exception) -> Any:
        reason = str(error).partition("\n")[0]
        if _REFUSALS.search(reason) or self._config.mode == "offline":
            raise Refused(f"{self.label} refuses the run: {reason}") from None
        # W&B's process holds the id of a run that it could not begin.
        self._wandb.teardown()
        self._wandb.setup(self._wandb.Settings(silent=True))
        there = self._start("offline")
        self._notes.append(
            f"{self.label} does not answer; the run is logged offline: send it later with"
            f" `wandb sync {Path(there.dir).parent}`, or resume the run when there is a network"
        )
        return there

    def _start(self, mode: str) -> Any:
        settings = {
            "mode": mode,
            "project": self._config.project,
            "entity": self._config.entity,
            "run_id": self._run.run_id,
            "run_name": self._run.name,
            "run_group": self._run.group,
            "run_tags": tuple(dict.fromkeys([*self._run.tags, *self._config.tags])),
            "run_job_type": self._run.kind,
            "root_dir": str(self._folder.absolute()),
            "resume": "allow",
            # Another run of this process goes on as it was.
            "reinit": "create_new",
            "init_timeout": self._config.wait_seconds * _PART_TO_BEGIN,
            "finish_timeout": self._config.wait_seconds,
            "finish_timeout_raises": True,
            # What ludus does itself, or does not want: output, code, machine, measurements of the system.
            "console": "off",
            "silent": True,
            "symlink": False,
            "disable_git": True,
            "disable_code": True,
            "save_code": False,
            "x_disable_meta": True,
            "x_disable_stats": True,
            "x_disable_machine_info": True,
            "x_save_requirements": False,
        }
        known = self._wandb.Settings.model_fields
        chosen = {name: value for name, value in settings.items() if name in known}
        return self._wandb.init(
            settings=self._wandb.Settings(**chosen),
            config=dict(self._run.config),
            allow_val_change=True,
        )

    def send(self, lines: Sequence[LogLine]) -> None:
        """Give lines to W&B's process, each with its number as the step."""
        with tempfile.TemporaryDirectory() as folder:
            for line in lines:
                timing = {f"time/{name}": value for name, value in line.timing.items()}
                row: dict[str, Any] = {**line.counters, **line.scalars, **timing, **line.texts}
                for name, drawn in line.histograms.items():
                    shape = (drawn["counts"], drawn["edges"])
                    row[name] = self._wandb.Histogram(np_histogram=shape)
                for index, (name, image) in enumerate(line.images.items()):
                    path = Path(folder) / f"{line.number}-{index}.png"
                    path.write_bytes(as_png(image))
                    row[name] = self._wandb.Image(str(path))
                self._choose_axis(line)
                named = {unicode(name): value for name, value in row.items()}
                self._there.log(named, step=line.number, commit=True)

    def _choose_axis(self, line: LogLine) -> None:
        """Have every metric drawn against the counter that the run is counted in."""
        order = dict.fromkeys([*AXES, *line.counters])
        names = [name for name in order if line.step and line.counters.get(name) == line.step]
        if names and not self._has_axis:
            self._has_axis = True
            self._there.define_metric("*", step_metric=names[0])

    def finish(self, end: LoggedEnd) -> None:
        """Send the best score and model, and how the run ended."""
        if end.score is not None:
            self._there.summary["best_score"] = end.score
            self._there.summary["best_metric"] = end.metric
        self._there.summary["ending"] = end.status
        with contextlib.ExitStack() as stack:
            if end.model is not None and self._config.best_model:
                artifact = self._wandb.Artifact(
                    f"best-{self._run.run_id}", type="model", metadata={"score": end.score}
                )
                for name in self._storage.names(end.model):
                    path = stack.enter_context(self._storage.local(f"{end.model}/{name}"))
                    artifact.add_file(str(path), name=name)
                self._there.log_artifact(artifact, aliases=["best"])
            try:
                self._there.finish(exit_code=_EXIT_CODES.get(end.status, _KILLED))
            except TimeoutError:
                raise Unreachable("no time was left") from None
        # W&B's process still writes when `finish` returns; a resume is to find all that was given to it.
        path = Path(self._there.settings.sync_file)
        until = time.monotonic() + self._config.wait_seconds
        while not wandb_files.is_complete(path) and time.monotonic() < until:
            time.sleep(0.01)

    def notes(self) -> list[str]:
        found, self._notes = self._notes, []
        return found


def _quiet_wandb() -> Any:
    """Return W&B's library, which prints nothing and reports no errors of its own."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    wandb.setup(wandb.Settings(silent=True))
    return wandb


def _log_in() -> Any:
    """Return W&B's library once it has an API key, which it is never asked for in a terminal."""
    wandb = _quiet_wandb()
    try:
        has_key = wandb.login(prompt=False, verify=False)
    except wandb.errors.AuthenticationError:
        has_key = False
    if not has_key:
        raise ConfigError(
            "the logger 'wandb' has no valid API key: run `wandb login`, set WANDB_API_KEY, or set its mode"
            " to offline"
        )
    return wandb


@contextlib.contextmanager
def _hooks_kept() -> Iterator[None]:
    """Undo what W&B installs in the process: its own sys.exit, excepthook and writes to the terminal."""
    before = sys.exit, sys.excepthook
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    own = ["write" in getattr(stream, "__dict__", {"write": None}) for stream in streams]
    try:
        yield
    finally:
        sys.exit, sys.excepthook = before
        for stream, is_own in zip(streams, own, strict=True):
            if not is_own and "write" in vars(stream):
                del stream.write
