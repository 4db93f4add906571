"""Bands around the mean of several runs."""

from __future__ import annotations

from enum import StrEnum

CONFIDENCE = 0.95


class Band(StrEnum):
    """The band around the mean of several runs."""

    STDERR = "stderr"
    BOOTSTRAP = "bootstrap"
    MINMAX = "minmax"
    NONE = "none"


BAND_NAMES = {
    Band.STDERR: "standard error",
    Band.BOOTSTRAP: "bootstrap interval",
    Band.MINMAX: "lowest to highest",
    Band.NONE: "none",
}
BAND_WORDS = {
    Band.STDERR: "plus and minus one standard error of the mean",
    Band.BOOTSTRAP: f"the {CONFIDENCE:.0%} bootstrap interval of the mean",
    Band.MINMAX: "from the lowest run to the highest",
    Band.NONE: "none",
}
