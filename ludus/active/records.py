"""Records of an active learning run for the report, as small files in its directory.

asked/round-0003.json     the queries of round 3, some of them shown, and the classes labelled so far
ranking.json              the candidates by score
calibration_3.json        the reliability curve of round 3
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ludus.config.base import Share

ASKED, RANKING, CURVE = "asked/round-{:04d}.json", "ranking.json", "calibration_{}.json"

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# The source of an image may contain nothing but base64.
Picture = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]+=*$", max_length=1 << 16)]


class RoundRecord(BaseModel):
    """A file that people may have edited: invalid content is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Example(RoundRecord):
    """One queried example and its label."""

    row: Count
    label: int | Finite
    picture: Picture | None
    """A PNG file in base64."""
    columns: list[str] | None
    numbers: list[Finite | None]
    """The first numbers of an example that is not an image; None if one is not finite."""
    num_more: Count
    """The number of its further numbers."""


class QueryRecord(RoundRecord):
    """The queries of one round."""

    format: Literal[1]
    round: Count
    how: str
    """The kind of the query strategy."""
    num_asked: Count
    class_names: list[str] | None
    labelled_by_class: list[Count] | None
    """Number of labelled examples of each class after this round; None for regression."""
    pool_by_class: list[Count] | None
    """Number of examples of each class in the whole pool, if known."""
    examples: list[Example]
    """The first of the queries."""


class Candidate(RoundRecord):
    """A candidate model."""

    name: str
    score: Finite | None
    """None if it is not finite."""
    parameters: Count
    is_taken: bool


class Ranking(RoundRecord):
    """All candidates, the best first."""

    format: Literal[1]
    by: str
    candidates: list[Candidate]


class Bin(RoundRecord):
    """Predictions of about the same confidence."""

    above: Share
    to: Share
    examples: Count
    confidence: Share | None
    accuracy: Share | None


class Curve(RoundRecord):
    """A reliability curve: accuracy by confidence."""

    round: Count
    bins: list[Bin]
    temperature: Finite | None = None
    scaled_bins: list[Bin] | None = None
