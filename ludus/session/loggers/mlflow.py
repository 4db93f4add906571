"""Log to MLflow: one run there for each run here, found again by its id after a resume."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.config.optional import check_installed
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.session.remote.log_line import LogLine, as_png
from ludus.session.remote.logged_run import LoggedEnd, LoggedRun
from ludus.session.remote.sender import Refused, Service, Unreachable
from ludus.session.remote.service_logger import ServiceLogger
from ludus.store.storage import Storage

_URI = "MLFLOW_TRACKING_URI"
_SCHEMES = ("http", "https", "databricks", "sqlite", "postgresql", "mysql", "mssql", "file")
_ENVIRONMENT = {
    # A service that does not answer is tried again by the sender, which does not make the run wait.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Standard output may be read by a program.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_RUN_ID = "ludus.run_id"
_NUM_LINES = "ludus.lines"
"""Metric that says how many lines of metrics.jsonl have arrived, sent with them in one transaction.

Its fraction counts the parts of the next line, of one that has more metrics than a call takes.
"""
_PARTS = 1000
_BEST = "ludus.best_model"
_SCORE = "best_score"
_STATUS = {"finished": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
_MAX_METRICS, _MAX_PARAMS, _MAX_VALUE = 1000, 100, 500
_MAX_NAME = 250


@register("logger", "mlflow")
class Mlflow(ServiceLogger["Mlflow.Config"]):
    """Sends metrics, the config as parameters, texts, images and the best model to an MLflow server."""

    class Config(StrictConfig):
        """Where the server is, and what it receives."""

        kind: Literal["mlflow"]
        """Always mlflow."""
        tracking_uri: str | None
        """Address of the server, such as http://127.0.0.1:5000; null takes MLFLOW_TRACKING_URI."""
        experiment: str
        """Name of the experiment; it is created if there is none."""
        tags: dict[str, str]
        """Tags of the run in MLflow, besides its group, kind and the tags it has here."""
        best_model: bool
        """Whether the best model is uploaded as an artifact when the run ends."""
        wait_seconds: PositiveFloat
        """How long the beginning and the end of a run wait for the server at most."""

        def problems(self) -> Iterator[str]:
            if not self.experiment.strip():
                yield "experiment is empty; name the experiment in MLflow that the run belongs to"
            if self.tracking_uri is not None and (problem := _uri_problem(self.tracking_uri)):
                yield f"tracking_uri {problem}"

    @staticmethod
    def check(config: Config) -> None:
        """Raise LudusError if MLflow is not installed or no server is named."""
        check_installed("mlflow", key="the logger 'mlflow'", extra="mlflow")
        _address(config)

    def _service(self, run: LoggedRun) -> Service:
        return MlflowRun(self._config, run, self._storage)


class MlflowRun:
    """One run in MLflow."""

    def __init__(self, config: Mlflow.Config, run: LoggedRun, storage: Storage) -> None:
        self._config, self._run, self._storage = config, run, storage
        self._uri = _address(config)
        self.label = f"MLflow at {_without_password(self._uri)}"
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._client: Any = None
        self._id = ""
        self._arrived = 0.0
        self._known: Mapping[str, Any] = {}

    def connect(self) -> int:
        """Find the run by its id, or create it, and return how many lines it has."""
        with _Answers(self.label):
            from mlflow import MlflowClient

            self._client = self._client or MlflowClient(tracking_uri=self._uri)
            found = self._find_run(self._experiment())
            self._id = found.info.run_id
            self._send_config(found.data.params, found.data.tags)
            self._known = {**found.data.metrics, **found.data.tags}
            self._arrived = found.data.metrics.get(_NUM_LINES, 0.0)
            return int(self._arrived)

    def _experiment(self) -> str:
        name = self._config.experiment
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name))
        if found.lifecycle_stage != "active":
            raise Refused(
                f"the experiment '{name}' was deleted in {self.label}; restore it there, or name another"
            )
        return str(found.experiment_id)

    def _find_run(self, experiment: str) -> Any:
        query = f"tags.`{_RUN_ID}` = '{self._run.run_id}'"
        found = self._client.search_runs([experiment], filter_string=query, max_results=1)
        if found:
            self._client.update_run(found[0].info.run_id, status="RUNNING")
            return found[0]
        own = {"ludus.kind": self._run.kind, "ludus.place": self._storage.place}
        if self._run.group is not None:
            own["ludus.group"] = self._run.group
        if self._run.tags:
            own["ludus.tags"] = ", ".join(self._run.tags)
        tags = {**own, **self._config.tags, _RUN_ID: self._run.run_id}
        return self._client.create_run(experiment, tags=tags, run_name=self._run.name)

    def _send_config(self, known: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Send the keys of the config as parameters; one that changed since is a tag, `resumed.<key>`."""
        from mlflow.entities import Param, RunTag

        config = {
            _name(key): str(value)[:_MAX_VALUE] or "''" for key, value in self._run.config.items()
        }
        new = [Param(key, value) for key, value in config.items() if key not in known]
        for at in range(0, len(new), _MAX_PARAMS):
            self._client.log_batch(self._id, params=new[at : at + _MAX_PARAMS])
        last = {key: tags.get(f"resumed.{key}", value) for key, value in known.items()}
        changed = [key for key, value in config.items() if last.get(key, value) != value]
        news = [RunTag(f"resumed.{key}", config[key]) for key in changed]
        for at in range(0, len(news), _MAX_PARAMS):
            self._client.log_batch(self._id, tags=news[at : at + _MAX_PARAMS])

    def send(self, lines: Sequence[LogLine]) -> None:
        """Send metrics, texts and images; histograms stay here, as MLflow has none."""
        waiting: list[Any] = []
        with _Answers(self.label):
            for line in lines:
                self._send_artifacts(line)
                for part in self._parts_of(line):
                    if len(waiting) + len(part) > _MAX_METRICS:
                        self._client.log_batch(self._id, metrics=waiting)
                        waiting = []
                    waiting += part
            if waiting:
                self._client.log_batch(self._id, metrics=waiting)

    def _parts_of(self, line: LogLine) -> list[list[Any]]:
        """Return the metrics of a line that have not arrived: one list, or several for too many of them.

        Each ends with a mark, and a call takes it whole or not at all. A line that is read back from the log
        has another time, so MLflow would keep twice what is sent twice.
        """
        from mlflow.entities import Metric

        when, size = round(line.time * 1000), _MAX_METRICS - 1
        # In an order that a line read back has too; it lacks the times, which come last.
        named = sorted({**line.counters, **line.scalars}.items())
        named += [(f"time/{name}", value) for name, value in line.timing.items()]
        metrics = [Metric(_name(key), value, when, line.step) for key, value in named]
        parts = [metrics[at : at + size] for at in range(0, len(metrics), size)] or [[]]
        for count, part in enumerate(parts, start=1):
            mark = line.number if count == len(parts) else line.number - 1 + count / _PARTS
            part.append(Metric(_NUM_LINES, mark, when, line.number))
        arrived = round((self._arrived - (line.number - 1)) * _PARTS)
        return parts[min(max(arrived, 0), len(parts) - 1) :]

    def _send_artifacts(self, line: LogLine) -> None:
        for name, text in line.texts.items():
            self._client.log_text(self._id, text, f"texts/{_file(name)}/{line.step}.txt")
        for name, image in line.images.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{line.step}.png"
                path.write_bytes(as_png(image))
                self._client.log_artifact(self._id, str(path), f"images/{_file(name)}")

    def finish(self, end: LoggedEnd) -> None:
        """Send the best score and model if they changed, and set the status of the run."""
        with _Answers(self.label):
            if end.score is not None and self._known.get(_SCORE) != end.score:
                self._client.log_metric(self._id, _SCORE, end.score, step=end.step)
            if end.metric is not None:
                self._client.set_tag(self._id, "ludus.best_metric", end.metric)
            is_new = end.digest is not None and self._known.get(_BEST) != end.digest
            if end.model is not None and is_new and self._config.best_model:
                for name in self._storage.names(end.model):
                    with self._storage.local(f"{end.model}/{name}") as path:
                        self._client.log_artifact(self._id, str(path), "best_model")
                self._client.set_tag(self._id, _BEST, end.digest)
            self._client.set_terminated(self._id, status=_STATUS.get(end.status, "KILLED"))

    def notes(self) -> list[str]:
        return []


class _Answers:
    """Turns the errors of MLflow's client into Unreachable and Refused; no text of a request is kept."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from mlflow.exceptions import MlflowException, RestException

        if isinstance(error, OSError):
            raise Unreachable(type(error).__name__) from None
        if not isinstance(error, MlflowException):
            return
        status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
        if status >= 500 or status in (408, 429):
            why = f"error {status}" if isinstance(error, RestException) else "no connection"
            raise Unreachable(why) from None
        why = str(error.message).partition(" Response body")[0]
        raise Refused(f"{self._label} refuses the run ({error.error_code}): {why}") from None


def _address(config: Mlflow.Config) -> str:
    """Return the address of the server."""
    uri = config.tracking_uri or os.environ.get(_URI)
    if not uri:
        raise ConfigError(
            f"the logger 'mlflow' has no server: set its tracking_uri, as in http://127.0.0.1:5000, or the"
            f" variable {_URI}"
        )
    if problem := _uri_problem(uri, is_secret=config.tracking_uri is None):
        raise ConfigError(f"{_URI} {problem}")
    return uri


def _uri_problem(uri: str, *, is_secret: bool = False) -> str | None:
    """Return what is wrong with the address of a server, without repeating a password in it."""
    try:
        parts = urlsplit(uri)
        scheme = parts.scheme.partition("+")[0]
        is_address = scheme in _SCHEMES
        if scheme in ("http", "https"):
            # Asking for a port that is no number, or too large, is an error.
            is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_secret and _without_password(uri) != uri:
        return (
            f"holds a password, which would be written to config.yaml; set it to null and give the address"
            f" in the variable {_URI}, or the password in MLFLOW_TRACKING_PASSWORD"
        )
    if uri != "databricks" and not is_address:
        return (
            f"is {_without_password(uri)!r}, which is no address of a server; it begins with http:// or"
            f" https://, as in http://127.0.0.1:5000, or with one of {', '.join(_SCHEMES[3:])}"
        )
    return None


def _without_password(uri: str) -> str:
    return re.sub(r"//[^/@]*@", "//", uri)


def _name(text: str) -> str:
    """Return a name that MLflow accepts for a metric or a parameter."""
    return re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)[:_MAX_NAME]


def _file(name: str) -> str:
    return re.sub(r"[^\w\-./]", "_", name, flags=re.ASCII).strip("./").replace("..", "_") or "_"
