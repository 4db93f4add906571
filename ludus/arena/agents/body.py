"""A body looks at a datum and at the messages so far; heads speak, value and classify by what it found.

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
    """What a body makes of its rows."""

    whole: Tensor
    """(N, D) features of the datum as a whole."""
    symbols: Tensor | None
    """(N, V, D) features of each symbol; None where it has none to tell apart by."""
    present: Tensor | None
    """(N, V) which symbols there are to be chosen; None: all."""
    context: Tensor | None = None
    """(N, P, E) features that the symbols of each of P equal stretches have in common; None: nothing more."""


class Body(nn.Module):
    """Derive it, set `width` to the number of its features, and return BodyFeatures from `forward`."""

    Config: ClassVar[type[StrictConfig]]
    needs: ClassVar[tuple[str, ...]] = ()
    """The names of the data without which it cannot be."""
    has_symbols: ClassVar[bool] = True
    """Whether it finds features of each symbol; false lets the head choose by the whole alone."""
    width: int
    """The number of features of the whole."""
    symbol_width: int = 0
    """The number of features of a symbol; 0: as many as the whole has."""
    context_width: int = 0
    """The number of features of a stretch of symbols; 0: there is no context."""
    value_gain: ClassVar[float | None] = None
    """How widely values are spread at first, for features that are spread by 1. None: 1 in envs, whose
    returns may be large, so that small values would take long to get there, and 0.1 under protocols."""

    def forward(self, rows: Rows) -> BodyFeatures:
        """Return the features of these rows."""
        raise NotImplementedError

    def observe(self, rows: Rows) -> None:
        """Take in the rows of an iteration when all has been learned from them; here, nothing is kept.

        `rows["there"]` (N,), where it is given, says in which of them the agent was there.
        """

    @property
    def has_observed(self) -> bool:
        """Whether it needs to observe nothing before it is first used."""
        return True


def make_body(section: StrictConfig, seen: ObservationSizes, *, agent: str) -> Body:
    """Return the body of this section, once the scenario is seen to have what it needs."""
    kind: str = section.kind  # type: ignore[attr-defined]
    cls = find("body", kind)
    if missing := [name for name in cls.needs if name not in seen.shapes]:
        raise ConfigError(
            f"'agents.{agent}.body.kind' is {kind}, which needs '{missing[0]}', but the data of this"
            f" scenario are {', '.join(seen.shapes)}; choose another body, or another scenario"
        )
    body: Body = cls(section, seen)
    return body
