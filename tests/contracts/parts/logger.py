"""The logger: what it has gathered and not yet written, of every type."""

from __future__ import annotations

import torch

from ludus.session.logger import Logger

# What waits to be written may be anything, or less.
HARMLESS = ("scalars*", "texts*", "histograms*", "images picture missing")


def make() -> Logger:
    return Logger({"backends": []})


def use(logger: Logger) -> None:
    logger.record({"train/loss": torch.tensor(0.1), "train/rate": 1e-3})
    logger.record({"train/loss": torch.tensor(float("nan"))})
    logger.text("note", "hello")
    logger.histogram("weights", torch.linspace(0, 1, 5))
    logger.image("picture", torch.zeros(3, 2, 2, dtype=torch.uint8))
