"""What a benchmark of games times: a call that does some amount of work on a device, made ready once."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks._harness import Role

SECONDS = 0.3
"""How long one call is timed in one round, about."""


@dataclass(frozen=True)
class Timed:
    """One row of the table, before it is measured."""

    work: str
    """What is done; only rows of the same work are compared."""
    system: str
    """How it is done."""
    unit: str
    """What is counted, a second."""
    amount: float
    """How much of it one call does."""
    make: Callable[[], Callable[[], object]]
    """Makes all ready and returns the call."""
    role: Role = "ludus"


def rate_of(call: Callable[[], object], amount: float, device: torch.device) -> float:
    """Return how much is done a second, over calls that take SECONDS together."""
    count = max(3, int(SECONDS / seconds_of(call, 3, device)))
    return amount / seconds_of(call, count, device)


def seconds_of(call: Callable[[], object], count: int, device: torch.device) -> float:
    """Return the seconds of one call, over so many; what is still under way on the device is waited for."""
    wait(device)
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait(device)
    return (time.perf_counter() - start) / count


def wait(device: torch.device) -> None:
    """Wait until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
