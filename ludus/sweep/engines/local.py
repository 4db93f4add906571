"""Runs a sweep in worker processes of this machine: warm, one thread each, gone when the sweep is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from ludus.config.registry import register
from ludus.process.child import Child, ready_among
from ludus.sweep.engine import MakeTrainer
from ludus.sweep.pool import PoolConfig, WorkerConnection, WorkerPool


@register("sweep_engine", "local")
class LocalEngine(WorkerPool):
    """A pool of child processes."""

    class Config(PoolConfig):
        """Options of the pool."""

        kind: Literal["local"]
        """Processes of this machine."""

    def __init__(self, config: Config, *, make_trainer: MakeTrainer | None = None) -> None:
        super().__init__(config, make_trainer=make_trainer)

    def _connect(self, number: int) -> WorkerConnection:
        return Child("ludus.sweep.worker", name=f"sweep worker {number}")

    def _ready_among(
        self, connections: Sequence[WorkerConnection], seconds: float
    ) -> Sequence[WorkerConnection]:
        return ready_among(cast("Sequence[Child]", connections), seconds)
