"""The cadence of the log: what its counters were when it last looked."""

from __future__ import annotations

from ludus.core import Every, Run
from ludus.session.logger import Logger, WriteLog


def make() -> WriteLog:
    return WriteLog(Logger({"backends": []}), [Every(10, "opt_steps"), Every(1, "epoch")])


def use(observer: WriteLog) -> None:
    run = Run()
    run.counters |= {"opt_steps": 25, "epoch": 2}
    observer(run)
