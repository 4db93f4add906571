"""Shared by the tests of the arena: what scenarios keep is kept in a folder of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep made data out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUDUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
