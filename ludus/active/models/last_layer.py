"""The linear layer that a network calls last, which need not be the last one registered."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def last_called(network: nn.Module, call: Callable[[], object]) -> nn.Linear | None:
    """Return the last linear layer of a network that `call` reaches; None if it reaches none."""
    called: list[nn.Linear] = []

    def keep(layer: nn.Module, given: object, found: object) -> None:
        assert isinstance(layer, nn.Linear)
        called.append(layer)

    layers = [one for one in network.modules() if isinstance(one, nn.Linear)]
    handles = [one.register_forward_hook(keep) for one in layers]
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return called[-1] if called else None
