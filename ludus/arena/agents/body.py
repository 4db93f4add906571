"""Body: computes features of a datum and of the messages so far, for the heads.

Shapes: N rows, R rounds, C channels, V symbols, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, NamedTuple

from pydantic import SerializeAsAny
from torch import Tensor, nn

from ludus.arena.scenario import ObservationSizes
from ludus.config.base import StrictConfig
from ludus.config.registry import find
from ludus.config.sections import registered
from ludus.core.errors import ConfigError

BodySection = Annotated[SerializeAsAny[StrictConfig], registered("body")]
Rows = Mapping[str, Tensor]
"""The data by name, `message_history` (N, R, C) of symbols or -1, `round` (N,)."""


class BodyFeatures(NamedTuple):
    """The features that a body computes."""

    whole: Tensor
    """(N, D) features of the datum as a whole."""
    symbols: Tensor | None
    """(N, V, D) features of each symbol; None where symbols have no features."""
    present: Tensor | None
    """(N, V) which symbols may be chosen; None: all."""
    context: Tensor | None = None
    """(N, P, E) shared features of the symbols of each of P equal segments; None: no context."""


class Body(nn.Module):
    """Base class of bodies: set `width` to the number of features, and return BodyFeatures from `forward`."""

    Config: ClassVar[type[StrictConfig]]
    needs: ClassVar[tuple[str, ...]] = ()
    """The names of the data that it requires."""
    has_symbols: ClassVar[bool] = True
    """Whether it computes features of each symbol; without, the head chooses by the whole alone."""
    width: int
    """The number of features of the whole."""
    symbol_width: int = 0
    """The number of features of a symbol; 0: as many as the whole has."""
    context_width: int = 0
    """The number of features of a segment of symbols; 0: there is no context."""
    value_gain: ClassVar[float | None] = None
    """The initial scale of values, for features of scale 1. None: 1 in environments, whose returns may be
    large, so that small values would take long to get there, and 0.1 under protocols.
    """

    def forward(self, rows: Rows) -> BodyFeatures:
        """Return the features of these rows."""
        raise NotImplementedError

    def observe(self, rows: Rows) -> None:
        """Update statistics with the rows of an iteration, after all updates on them; here, none are kept.

        `rows["there"]` (N,), where given, is the mask of rows in which the agent was present.
        """

    @property
    def has_observed(self) -> bool:
        """Whether it is ready for use without observing anything first."""
        return True


def make_body(section: StrictConfig, seen: ObservationSizes, *, agent: str) -> Body:
    """Return the body of this section, after checking that the scenario has the data it needs."""
    kind: str = section.kind  # type: ignore[attr-defined]
    cls = find("body", kind)
    if missing := [name for name in cls.needs if name not in seen.shapes]:
        raise ConfigError(
            f"'agents.{agent}.body.kind' is {kind}, which needs '{missing[0]}', but the data of this"
            f" scenario are {', '.join(seen.shapes)}; choose another body, or another scenario"
        )
    body: Body = cls(section, seen)
    return body
