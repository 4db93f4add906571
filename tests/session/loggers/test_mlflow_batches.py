"""Calls to MLflow end where a line ends, so that a call without an answer repeats no point."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ludus.config.registry import find
from ludus.session.loggers import mlflow as logger
from ludus.session.remote.log_line import LogLine
from ludus.session.remote.logged_run import LoggedRun
from ludus.session.remote.sender import Unreachable
from ludus.store.local import LocalStorage
from tests.session.loggers.tracking_server import TrackingServer

RUN = LoggedRun("id", "run", "supervised", None, (), {}, ())


class Cuts:
    """MLflow's client, whose connection ends before or after one of its calls."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.cut_at = -1
        self.is_lost_after = False
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def log_batch(self, run_id: str, **given: Any) -> None:
        self.cut_at -= 1
        if self.cut_at == 0 and not self.is_lost_after:
            raise ConnectionError
        self._client.log_batch(run_id, **given)
        self.sizes.append(len(given.get("metrics", ())))
        if self.cut_at == 0:
            raise ConnectionError


@pytest.fixture
def uri(server: TrackingServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def connected(uri: str, name: str, run: LoggedRun = RUN) -> tuple[logger.MlflowRun, Cuts]:
    """Return a run in an experiment of this name, and its client."""
    from mlflow import MlflowClient

    given = {"kind": "mlflow", "tracking_uri": uri, "experiment": name, "tags": {}}
    config = find("logger", "mlflow").Config(**given, best_model=False, wait_seconds=1.0)
    service = logger.MlflowRun(config, run, LocalStorage(Path("nowhere")))
    service._client = client = Cuts(MlflowClient(tracking_uri=uri))
    service.connect()
    return service, client


def line(number: int, num_metrics: int, *, time: float = 1.0) -> LogLine:
    scalars = {f"metric {n}": float(n) for n in range(num_metrics)}
    return LogLine(number, time, number, {"opt_steps": number}, scalars)


@pytest.mark.parametrize("is_lost_after", [False, True])
@pytest.mark.parametrize(
    ("sizes", "cut_at"),
    [((400, 400, 400), n) for n in (1, 2)] + [((2500, 10), n) for n in (1, 2, 3)],
)
def test_a_line_that_is_read_back_after_a_cut_is_kept_once(
    uri: str, sizes: tuple[int, ...], cut_at: int, is_lost_after: bool
) -> None:
    service, client = connected(uri, f"{sizes} {cut_at} {is_lost_after}")
    client.cut_at, client.is_lost_after = cut_at, is_lost_after
    lines = [line(number, size) for number, size in enumerate(sizes, start=1)]
    with pytest.raises(Unreachable):
        service.send([replace(one, timing={"a": 1.0}) for one in lines])
    # From the log a line comes without its timing, and its time is that of the reading.
    service.send([replace(one, time=2.0) for one in lines[service.connect() :]])
    for name in ("opt_steps", "metric 0", f"metric {sizes[0] - 1}"):
        numbers = [one.number for one in lines if name in {**one.counters, **one.scalars}]
        history = client.get_metric_history(service._id, name)
        assert [one.step for one in history] == numbers, name
    found = client.get_run(service._id).data.metrics
    assert {*lines[0].scalars} <= {*found}
    assert found["ludus.lines"] == len(sizes) == service.connect()
    assert max(client.sizes) <= 1000


def test_more_changed_keys_than_a_call_takes_are_all_tags(uri: str) -> None:
    keys = [f"key_{n}" for n in range(230)]
    for value in ("old", "new"):
        service, client = connected(uri, "tags", replace(RUN, config=dict.fromkeys(keys, value)))
    tags = client.get_run(service._id).data.tags
    assert all(tags[f"resumed.{key}"] == "new" for key in keys)
