"""Train a ResNet-50 from a folder of JPEG files: the rate, and how busy the GPU is.

Beside it the same training with batches that lie on the device, and the same files read, decoded and
uploaded with nothing trained: the rate of training can be no more than the smaller of the two.
"""

import os
from typing import Any

from benchmarks._harness import Case, Row, ask_child, is_installed, say, summarise

ROUNDS = 1
WORKS = {"cuda": "ResNet-50", "cpu": "small ResNet"}


def run(rounds: int, device: str = "cpu") -> list[Row]:
    """Return rates and the share of the time in which the GPU computes."""
    work = WORKS[device]
    workers = max(1, (os.cpu_count() or 2) - 2)
    asked: dict[str, Any] = {"work": work, "device": device}
    with_workers = {**asked, "workers": workers}
    systems: list[tuple[str, str, str, dict[str, Any]]] = [
        ("batches on the device", "real", "measure", {**asked, "engine": "auto"}),
        (f"JPEG files, {workers} workers", "pictures", "measure", with_workers),
        (f"JPEG files read, nothing trained, {workers} workers", "pictures", "read_only", with_workers),
    ]  # fmt: skip
    values: dict[Case, list[float]] = {}
    cases = [
        Case(work, system, "images/s", "ludus", f"benchmarks._{module}_ludus", function, arguments,
             ("pillow",), is_larger_better=True)
        for system, module, function, arguments in systems
    ]  # fmt: skip
    busy = Case(f"{work}, GPU busy", cases[1].system, "%", "ludus", "", "", is_larger_better=True)
    for index in range(rounds):
        for case in filter(is_installed, cases):
            answer = ask_child(case)
            say(f"round {index + 1} of {rounds}: {case.system}: {answer}")
            values.setdefault(case, []).append(answer["rate"])
            if "busy" in answer:
                values.setdefault(busy, []).append(answer["busy"])
    return summarise(values, baseline=systems[0][0])
