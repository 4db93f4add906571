"""Runs a sweep in actors of Ray, on a cluster that it starts and ends, or on one that it joins."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Annotated, Literal, cast

from pydantic import Field

from ludus.config.registry import register
from ludus.core.errors import ConfigError, LudusError
from ludus.sweep.cluster.connection import RayCluster, RemoteWorker
from ludus.sweep.engine import MakeTrainer, RunListener
from ludus.sweep.pool import PoolConfig, SweepWorker, WorkerConnection, WorkerPool

_ADDRESS = re.compile(r"[^\s/]+:[0-9]{1,5}")
_PLACE_SECONDS = 300.0


@register("sweep_engine", "ray")
class RayEngine(WorkerPool):
    """A pool of actors, each holding a worker process as those of the engine local."""

    class Config(PoolConfig):
        """Options of the pool, and the cluster."""

        kind: Literal["ray"]
        """Actors of Ray."""
        address: str | None
        """The cluster to join, as host:port; null: start one on this machine, which ends with the sweep."""
        gpus_per_worker: Annotated[float, Field(ge=0)]
        """GPUs that Ray reserves for each worker; a fraction shares one."""

        def problems(self) -> Iterator[str]:
            """Yield a sentence if the address is none."""
            if self.address is not None and not _ADDRESS.fullmatch(self.address):
                yield (
                    f"'address' is {self.address!r}; begin the sweep on a machine of the cluster and write"
                    " host:port, or set it to null"
                )

    def __init__(self, config: Config, *, make_trainer: MakeTrainer | None = None) -> None:
        super().__init__(config, make_trainer=make_trainer)
        if find_spec("ray") is None:
            raise ConfigError(
                "'engine.kind' ray needs ray; install it with: pip install 'ludus[ray]'"
            )
        self._config = config
        self._num_gpus = _own_gpus(config)
        self._cluster: RayCluster | None = None

    @property
    def capacity(self) -> int:
        """Number of runs that it executes at once: a cluster may not have room for all workers yet."""
        placed = sum(self._is_placed(worker) for worker in self._workers)
        return super().capacity if self._config.address is None else max(1, placed)

    def open(self, listener: RunListener, directory: str) -> None:
        config = self._config
        self._cluster = RayCluster(
            address=config.address, workers=config.workers, num_gpus=self._num_gpus,
            gpus_per_worker=config.gpus_per_worker,
            memory_gb=config.memory_gb, directory=directory,
        )  # fmt: skip
        self._had_room = time.monotonic()
        super().open(listener, directory)

    def _connect(self, number: int) -> WorkerConnection:
        assert self._cluster is not None
        return self._cluster.start()

    def _ready_among(
        self, connections: Sequence[WorkerConnection], seconds: float
    ) -> Sequence[WorkerConnection]:
        assert self._cluster is not None
        return self._cluster.ready_among(cast("Sequence[RemoteWorker]", connections), seconds)

    def work(self, seconds: float) -> None:
        super().work(seconds)
        if any(map(self._is_placed, self._workers)):
            self._had_room = time.monotonic()
        waited = time.monotonic() - self._had_room
        if waited > _PLACE_SECONDS:
            assert self._cluster is not None
            have = ", ".join(
                f"{n:g} {k}" for k, n in self._cluster.resources.items() if k in ("CPU", "GPU")
            )
            raise LudusError(
                f"the cluster at {self._config.address} has had no room for a worker for {waited:.0f} s;"
                f" it has {have} in all: wait until other work there has ended, or ask for less"
            )

    def _silence_allowed(self, worker: SweepWorker) -> float | None:
        # A cluster may be busy for long before there is room.
        return super()._silence_allowed(worker) if self._is_placed(worker) else None

    @staticmethod
    def _is_placed(worker: SweepWorker) -> bool:
        return cast(RemoteWorker, worker.connection).is_placed

    def close(self) -> None:
        super().close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _own_gpus(config: RayEngine.Config) -> int:
    """Return the GPUs of the cluster that it starts; raise ConfigError if these are too few."""
    if config.address is not None or not config.gpus_per_worker:
        return 0
    import torch

    there = torch.cuda.device_count()
    if config.workers * config.gpus_per_worker > there:
        raise ConfigError(
            f"'engine.gpus_per_worker' is {config.gpus_per_worker:g} for {config.workers} workers, and this"
            f" machine has {there} GPUs; lower one of the two"
        )
    return there
