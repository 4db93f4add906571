"""The work that every system of the supervised benchmark does, and the watch that times it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

NUM_EXAMPLES = 6400
NUM_FEATURES = 64
NUM_CLASSES = 10
BATCH_SIZE = 64
LEARNING_RATE = 1e-3
LOG_EVERY = 50
STEPS_PER_EPOCH = NUM_EXAMPLES // BATCH_SIZE
NUM_WARM_STEPS = 5 * STEPS_PER_EPOCH
NUM_TIMED_STEPS = 40 * STEPS_PER_EPOCH
NUM_EPOCHS = (NUM_WARM_STEPS + NUM_TIMED_STEPS) // STEPS_PER_EPOCH


class Stopwatch:
    """Takes the time at the end of two known steps; call it once at the end of every step."""

    def __init__(self) -> None:
        self.num_steps = 0
        self._times: dict[int, float] = {}

    def __call__(self) -> None:
        """Count one step, and keep the time if it is the last of the warm or of the timed ones."""
        self.num_steps += 1
        if self.num_steps in (NUM_WARM_STEPS, NUM_WARM_STEPS + NUM_TIMED_STEPS):
            self._times[self.num_steps] = time.perf_counter()

    def microseconds_per_step(self) -> float:
        """Return the time of one step, having checked that the run was the agreed one."""
        assert self.num_steps == NUM_EPOCHS * STEPS_PER_EPOCH, self.num_steps
        assert torch.get_num_threads() == 1, torch.get_num_threads()
        start, end = self._times.values()
        return (end - start) / NUM_TIMED_STEPS * 1e6


class Batches:
    """The examples in shuffled batches, a new permutation each time it is iterated over."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(NUM_EXAMPLES, NUM_FEATURES, generator=self._generator)
        self.labels = torch.randint(NUM_CLASSES, (NUM_EXAMPLES,), generator=self._generator)

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(NUM_EXAMPLES, generator=self._generator)
        for chosen in order.split(BATCH_SIZE):
            yield self.inputs[chosen], self.labels[chosen]


class LossLog:
    """A file with one JSON line for every loss that was logged."""

    def __init__(self) -> None:
        # The end of the process closes it, after the timed steps.
        self._file = Path("losses.jsonl").open("w")  # noqa: SIM115

    def __call__(self, step: int, loss: float) -> None:
        """Append one loss."""
        self._file.write(json.dumps({"step": step, "loss": loss}) + "\n")


def make_network() -> nn.Sequential:
    """Return the network with the same first weights each time, and keep torch to one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(NUM_FEATURES, NUM_FEATURES), nn.ReLU(), nn.Linear(NUM_FEATURES, NUM_CLASSES)
    )


def make_adam(network: nn.Module, *, fused: bool = False) -> torch.optim.Adam:
    """Return Adam as everybody writes it, or fused."""
    return torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=fused or None)
