"""Protocols of starting from another run: what a trainer takes over, and what a saved state offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Taken:
    """The weights of another run, by whether they fit."""

    weights: Mapping[str, Any]
    """Those of the same name and shape."""
    other_shape: Mapping[str, tuple[Shape, Shape]]
    """The shapes, there and here, of those of the same name alone."""
    only_there: Sequence[str]
    only_here: Sequence[str]


@dataclass(frozen=True)
class SavedTraining:
    """The networks and parts in a saved state that another run can start from."""

    networks: Mapping[str, Mapping[str, Any]]
    """The `weights` and the `optimizer` of each network, by the name of the network."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """The states of further parts, by their key in the section `start`; None where there is none."""

    def weights(self) -> dict[str, Any]:
        """Return the weights of all networks by the names that they have in kept models."""
        return {
            f"{network}.{name}" if network else name: tensor
            for network, state in self.networks.items()
            for name, tensor in state["weights"].items()
        }


class TakesOver(Protocol):
    """The networks and parts of a new run that can begin as those of another."""

    def check(self, start: Any, /) -> None:
        """Raise ConfigError for a prefix in this section that names nothing."""

    def fitting(self, weights: Mapping[str, Any], /) -> Taken:
        """Return which of these weights fit; nothing is changed."""

    def take(self, taken: Taken, /) -> None:
        """Copy these weights in."""

    def take_optimizer(self, networks: Mapping[str, Mapping[str, Any]], /) -> None:
        """Load the state of the optimizer of each network."""

    def take_part(self, key: str, state: Any, /) -> None:
        """Load the state of the part with this key in the section `start`."""


@runtime_checkable
class Starts(Protocol):
    """Can start from the weights of another run: the config's section `start`."""

    def starting(self) -> TakesOver:
        """Return what this run can take over; called after `prepare`."""

    @staticmethod
    def saved_training(state: Mapping[str, Any], /) -> SavedTraining:
        """Return what a saved state of this kind of run offers."""
