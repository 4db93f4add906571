"""Shared by the tests of several kinds' keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ludus.nn.engines import compiled


@pytest.fixture
def compiled_calls(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with each call of compiled code; the compiler takes its trace as it is."""
    calls: list[None] = []
    build = compiled.CompiledMethod._build

    def counted(self: Any, traced: Any, inputs: Any, **options: Any) -> Any:
        forward = traced.forward

        def run(*given: Any) -> Any:
            calls.append(None)
            return forward(*given)

        return build(self, SimpleNamespace(forward=run), inputs, **options)

    monkeypatch.setattr(compiled, "BACKEND", "eager")
    monkeypatch.setattr(compiled.CompiledMethod, "_build", counted)
    return calls
