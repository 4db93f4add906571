"""Time how long training stands still for a checkpoint of 100 MB, and how much the steps during it slow down.

A small network trains next to a table of 100 MB that is part of its state, so that a step takes well
under a millisecond and every pause shows. The peer saves the way most scripts do: torch.save and
fsync in the loop.
"""

import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks._harness import Case, Role, Row, measure

CHECKPOINT_BYTES = 100_000_000
NUM_FEATURES = 64
STEPS_PER_SAVE = 4000
NUM_SAVES = 4


def run(rounds: int) -> list[Row]:
    """Return the pauses of ludus, and what the copy alone and a blocking save cost."""
    return measure(
        [
            _case("pause of a 100 MB checkpoint", "torch.save + fsync", "_torch_save", "peer"),
            _case("pause of a 100 MB checkpoint", "ludus", "_ludus_pause", "ludus"),
            _case("pause beyond the snapshot copy", "ludus", "_ludus_beyond_copy", "ludus"),
            _case("snapshot copy alone", "copy of 100 MB", "_copy", "reference"),
            _case("worst step during the write", "ludus", "_ludus_worst_step", "ludus"),
            _case("worst step without any write", "ludus", "_ludus_quiet_step", "ludus"),
        ],
        rounds,
    )


def _case(work: str, system: str, function: str, role: Role) -> Case:
    return Case(work, system, "ms", role, module=__name__, function=function)


class WithTable(nn.Module):
    """A small network and a table that makes its state 100 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(NUM_FEATURES, NUM_FEATURES), nn.ReLU(), nn.Linear(NUM_FEATURES, 10)
        )
        self.register_buffer("table", torch.randn(CHECKPOINT_BYTES // 4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the small network."""
        return self.layers(inputs)


class _Watch:
    """Times every step, and finds those on which a save fell and those during which one was written."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._last = 0.0
        self.pauses: list[float] = []
        self.during: list[float] = []
        self.quiet: list[float] = []
        self._num_saves = 0

    def after_step(self) -> None:
        """Take the time since the step before."""
        now = time.perf_counter()
        elapsed, self._last = (now - self._last) * 1e3, now
        step = self._trainer.run.counters["opt_steps"]
        if step < STEPS_PER_SAVE:
            return
        if step % STEPS_PER_SAVE == 1:
            # The save fell on the boundary between the step before and this one.
            self.pauses.append(elapsed)
        elif _is_writing():
            self.during.append(elapsed)
        else:
            self.quiet.append(elapsed)


def _is_writing() -> bool:
    import threading

    return any(thread.name == "ludus-saver" for thread in threading.enumerate())


def _train() -> _Watch:
    import ludus
    from benchmarks.supervised import _ADAM
    from ludus.data.batches.splits import Examples

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = ludus.example("supervised").replace(
        data=None,
        model=None,
        batch_size=64,
        max_epochs=1000,
        max_opt_steps=NUM_SAVES * STEPS_PER_SAVE + STEPS_PER_SAVE // 2,
        max_grad_norm=None,
        ema_decay=None,
        engine="tape",
        evaluate_every_epochs=0,
        evaluation__patience=None,
        evaluation__keep=0,
        optimizer=_ADAM,
        learning_rate_schedule={"kind": "constant", "warmup_steps": 0},
        **{
            "settings.threads": 1,
            "settings.display": "none",
            "settings.checkpoint.every_seconds": 0.0,
            "settings.checkpoint.every_opt_steps": STEPS_PER_SAVE,
        },
    )
    data = Examples(torch.randn(6400, NUM_FEATURES), torch.randint(10, (6400,)))
    trainer = ludus.Trainer(config, train_loader=data)
    trainer.set_model(WithTable())
    watch = _Watch(trainer)
    trainer.add(watch)
    trainer.fit()
    return watch


def _ludus_pause() -> float:
    """Return the usual pause, leaving out the first save, which makes the snapshot's buffers."""
    watch = _train()
    return statistics.median(watch.pauses[1:]) - statistics.median(watch.quiet)


def _ludus_beyond_copy() -> float:
    """Return the pause less the time that copying the same bytes takes in this process."""
    watch = _train()
    return statistics.median(watch.pauses[1:]) - statistics.median(watch.quiet) - _copy()


def _ludus_worst_step() -> float:
    """Return the longest step during a write, less a usual step, as the median over the saves."""
    watch = _train()
    share = max(len(watch.async_evaluator) // NUM_SAVES, 1)
    worst = [
        max(watch.async_evaluator[i : i + share])
        for i in range(0, len(watch.async_evaluator), share)
    ]
    return statistics.median(worst) - statistics.median(watch.quiet)


def _ludus_quiet_step() -> float:
    """Return the longest step without a write, as the median over pieces as long as a write."""
    watch = _train()
    share = max(len(watch.async_evaluator) // NUM_SAVES, 1)
    worst = [max(watch.quiet[i : i + share]) for i in range(0, len(watch.quiet), share)]
    return statistics.median(worst) - statistics.median(watch.quiet)


def _copy() -> float:
    """Time a copy of 100 MB between two buffers that are both in use."""
    torch.set_num_threads(1)
    source = torch.randn(CHECKPOINT_BYTES // 4)
    target = torch.zeros_like(source)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        target.copy_(source)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def _torch_save() -> float:
    """Time torch.save and fsync of the same state, as a script does between two steps."""
    torch.set_num_threads(1)
    state = WithTable().state_dict()
    times = []
    for number in range(5):
        start = time.perf_counter()
        with Path(f"state-{number}.pt").open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)
