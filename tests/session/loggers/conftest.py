"""MLflow's server, started once for all tests of loggers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.session.loggers.tracking_server import TrackingServer


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    found = TrackingServer(tmp_path_factory.mktemp("mlflow"))
    yield found
    found.stop()
