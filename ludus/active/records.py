"""What a run of active learning leaves in its directory for the report, a small file for each thing.

asked/round-0003.json     what round 3 asked for, some of it to be seen, and the classes labelled so far
ranking.json              the candidates by score
calibration_3.json        the reliability curve of round 3
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ludus.core.errors import LudusError

ASKED, RANKING, CURVE = "asked/round-{:04d}.json", "ranking.json", "calibration_{}.json"

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
# Nothing but base64 may stand in the source of a picture.
Picture = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]+=*$", max_length=1 << 16)]


class Record(BaseModel):
    """A file that people may have edited: whatever does not fit is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Example(Record):
    """One example that was asked for, and what was answered."""

    row: Count
    label: int | Finite
    picture: Picture | None
    """A PNG file in base64."""
    columns: list[str] | None
    numbers: list[Finite | None]
    """The first numbers of an example that is no picture; None where one is not finite."""
    num_more: Count
    """How many numbers it has besides."""


class QueryRecord(Record):
    """What one round asked for."""

    format: Literal[1]
    round: Count
    how: str
    """The kind of the strategy that chose."""
    num_asked: Count
    class_names: list[str] | None
    labelled_by_class: list[Count] | None
    """How many labelled examples there are of each class after this round; None where labels are numbers."""
    pool_by_class: list[Count] | None
    """How many the whole pool has, where that is known."""
    examples: list[Example]
    """The first of what was asked for."""


class Candidate(Record):
    """A model that could have been taken."""

    name: str
    score: Finite | None
    """None where it is not finite."""
    parameters: Count
    is_taken: bool


class Ranking(Record):
    """All candidates, the best first."""

    format: Literal[1]
    by: str
    candidates: list[Candidate]


class Bin(Record):
    """Predictions of about the same confidence."""

    above: Share
    to: Share
    examples: Count
    confidence: Share | None
    accuracy: Share | None


class Curve(Record):
    """How often predictions of each confidence are right."""

    round: Count
    bins: list[Bin]
    temperature: Finite | None = None
    scaled_bins: list[Bin] | None = None


R = TypeVar("R", bound=Record)


def read(kind: type[R], found: object, *, source: str) -> R:
    """Return a record, or raise LudusError with what is wrong with it first."""
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise LudusError(f"{source} is not as the run wrote it: {where}: {first['msg']}") from None
