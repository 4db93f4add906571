"""The engines by name: each takes a function and returns one that does the same in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import torch

from ludus.nn.engines.compiled import compile_method
from ludus.nn.engines.graph import Graphed
from ludus.nn.engines.tape import Recorded

EngineName = Literal["eager", "tape", "compiled", "graph"]
Executed = Callable[..., Any]
"""An update: a method of tensors that changes its owner's tensors in place."""


class Engine(Protocol):
    """Executes an update; never decides what it computes."""

    def __call__(self, method: Executed, device: torch.device, /) -> Executed:
        """Return a function that does what the method does; raise ConfigError where it cannot here."""
        ...


def _eager(method: Executed, device: torch.device) -> Executed:
    return method


def _tape(method: Executed, device: torch.device) -> Executed:
    return Recorded(method)


ENGINES: Mapping[EngineName, Engine] = {
    "eager": _eager,
    "tape": _tape,
    "compiled": compile_method,
    "graph": Graphed,
}
