"""A policy network split into pieces that NumPy can compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ludus.nn.export.numpy_net import Linear
from ludus.nn.export.numpy_policy import Kind


@dataclass(frozen=True)
class ExportedPolicy:
    """A policy network in two pieces, and the meaning of its outputs."""

    kind: Kind
    body: nn.Module
    heads: Mapping[str, nn.Module | Linear]
    """The layers after the body, by the names that the policy kind uses."""
