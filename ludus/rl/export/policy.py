"""The network of a policy in the pieces that NumPy can compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ludus.nn.export.numpy_net import Linear
from ludus.nn.export.numpy_policy import Kind


@dataclass(frozen=True)
class ExportedPolicy:
    """The network of a policy in two pieces, and what its outputs mean."""

    kind: Kind
    body: nn.Module
    heads: Mapping[str, nn.Module | Linear]
    """By the name that the kind of policy knows: the layers after the body."""
