"""Train the work of the arena's benchmark with ludus: the whole trainer, with its log and checkpoints."""

import time

import torch

import ludus
from benchmarks._arena_work import WARM, config_of, timed_of


class Window:
    """A callback that takes the time when the warm iterations are over, and when the timed ones are."""

    def __init__(self, device: str, timed: int) -> None:
        self._device = device
        self._timed = timed
        self.times: list[float] = []

    def before_iteration(self, run: ludus.Run) -> None:
        """Look at the clock where the window opens and where it closes."""
        if run.counters["iteration"] in (WARM, WARM + self._timed):
            if self._device == "cuda":
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())


def rate(num_envs: int, device: str, only_rollouts: bool, engine: str) -> float:
    """Return the frames a second; what an engine prepares, it does in the warm iterations."""
    config = config_of(num_envs, device).replace(engine=engine)
    timed = timed_of(num_envs)
    frames = timed * config.frames_per_batch
    trainer = ludus.build_trainer(config)
    if only_rollouts:
        # The same method that its stage `collect` calls.
        from ludus.core.runtime import InMemoryRuntime

        return _rollouts_alone(trainer, InMemoryRuntime, device, timed, frames)
    window = Window(device, timed)
    trainer.add(window)
    trainer.fit(name="bench")
    first, last = window.times
    return frames / (last - first)


def _rollouts_alone(trainer: object, bare: object, device: str, timed: int, frames: int) -> float:
    found: list[float] = []

    class Rollouts:
        def before_train(self) -> None:
            for index in range(WARM + timed):
                if index == WARM:
                    _wait(device)
                    found.append(time.perf_counter())
                trainer._roll_out(index)  # type: ignore[attr-defined]
            _wait(device)
            found.append(time.perf_counter())

        def after_collect(self, run: ludus.Run) -> None:
            run.stop("enough was timed")

    trainer.add(Rollouts())  # type: ignore[attr-defined]
    trainer.fit(runtime=bare)  # type: ignore[attr-defined]
    return frames / (found[1] - found[0])


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
