"""Milestones: the epoch they last looked at."""

from __future__ import annotations

from ludus.core import Every, Run
from ludus.judge.milestones import Milestones


def make() -> Milestones:
    cadence = Every(2, "epoch")
    return Milestones(cadence, name=lambda run: "m", save=lambda name, note: None)


def use(observer: Milestones) -> None:
    run = Run()
    run.counters["epoch"] = 3
    observer(run)
