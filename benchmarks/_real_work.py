"""The work of the benchmark of real networks: what is trained, on what, and the watch that times it."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._real_networks import GPT, ResNet, ViT

NUM_WARM_STEPS = 12
NUM_BATCHES = 4
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 0.01
MAX_GRAD_NORM = 1.0
NUM_CLASSES = 1000


@dataclass(frozen=True)
class Work:
    """One network and the shape of its batches."""

    network: Callable[[], nn.Module]
    batch_size: int
    shape: tuple[int, ...]
    """Of one example: an image, or the length of a text."""
    vocabulary: int
    """How many tokens there are; 0 for images."""
    unit: str
    per_example: int
    num_steps: int
    """How many steps are timed."""


WORKS = {
    "cuda": {
        "ResNet-50": Work(lambda: ResNet((3, 4, 6, 3)), 256, (3, 224, 224), 0, "images/s", 1, 40),
        "ViT-B/16": Work(
            lambda: ViT(224, 16, 768, 12, 12), 256, (3, 224, 224), 0, "images/s", 1, 30
        ),
        "GPT 124M": Work(
            lambda: GPT(50304, 1024, 768, 12, 12), 16, (1024,), 50304, "tokens/s", 1024, 60
        ),
    },
    "cpu": {
        "small ResNet": Work(
            lambda: ResNet((1, 1, 1, 1), 8, 10), 32, (3, 32, 32), 0, "images/s", 1, 60
        ),
        "small GPT": Work(lambda: GPT(512, 64, 64, 2, 2), 16, (64,), 512, "tokens/s", 64, 60),
    },
}


def be_exact() -> None:
    """Let torch compute the same bits each time, as ludus does by itself."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    from torch._inductor import config

    config.deterministic = True


def make_network(work: Work, device: str) -> nn.Module:
    """Return the network with the same first weights each time."""
    torch.manual_seed(0)
    with torch.device(device):
        return work.network()


def make_examples(work: Work, device: str) -> tuple[Tensor, Tensor]:
    """Return as many examples as a few batches hold, and their answers, on the device."""
    generator = torch.Generator(device).manual_seed(1)
    count = NUM_BATCHES * work.batch_size
    options = {"generator": generator, "device": device}
    if work.vocabulary:
        tokens = torch.randint(work.vocabulary, (count, work.shape[0] + 1), **options)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    classes = 10 if device == "cpu" else NUM_CLASSES
    return torch.randn(count, *work.shape, **options), torch.randint(classes, (count,), **options)


def batches(work: Work, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches for ever."""
    inputs, targets = make_examples(work, device)
    while True:
        yield from zip(inputs.split(work.batch_size), targets.split(work.batch_size), strict=True)


def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy, of each token where there are several."""
    return functional.cross_entropy(outputs, targets.flatten())


def make_optimizer(network: nn.Module, *, fused: bool = True) -> torch.optim.Optimizer:
    """Return AdamW as people use it on a GPU."""
    return torch.optim.AdamW(
        network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=fused
    )


class Stopwatch:
    """Takes the time over the steps after the first ones, and the memory they need at most."""

    def __init__(self, work: Work, device: str) -> None:
        self._work, self._device = work, device
        self.num_steps = 0
        self._born = self._start = time.perf_counter()
        self.first_step_s = 0.0
        self.answer: dict[str, float] | None = None

    def __call__(self) -> bool:
        """Count one step; return whether there were enough."""
        self.num_steps += 1
        if self.num_steps == 1:
            self._wait()
            self.first_step_s = time.perf_counter() - self._born
        if self.num_steps == NUM_WARM_STEPS:
            self._wait()
            if self._device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            self._start = time.perf_counter()
        if self.num_steps < NUM_WARM_STEPS + self._work.num_steps:
            return False
        self._wait()
        seconds = time.perf_counter() - self._start
        items = self._work.num_steps * self._work.batch_size * self._work.per_example
        self.answer = {"rate": items / seconds, "first_step": self.first_step_s}
        if self._device == "cuda":
            self.answer["memory"] = torch.cuda.max_memory_allocated() / 2**30
        return True

    def _wait(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()
