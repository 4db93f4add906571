"""Train ResNet-50, ViT-B/16 and a GPT of 124M with ludus, a plain loop, Lightning and HF's Trainer.

bfloat16 (autocast), AdamW, clipping, the same bits each time; batches lie on the device. The networks are
classes of the user's own; ludus has `engine: auto` and its whole trainer. Rates and the memory at most are of
the steps after the first ones. Time to the first step of a resumed run: fresh processes, caches warm.
"""

import os
from typing import Any

from benchmarks._harness import BenchmarkError, Case, Row, ask_child, is_installed, say, summarise
from benchmarks._real_work import WORKS

ROUNDS = 1
PLAIN = "plain loop, compiled"


def run(rounds: int, device: str = "cpu") -> list[Row]:
    """Return rates, memory and the time to the first step after a resume.

    LUDUS_BENCH_ONLY, words after commas, leaves out the works and systems that hold none of them.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BenchmarkError("--device is cuda, but torch sees no CUDA device here; use cpu")
    values: dict[Case, list[float]] = {}
    for index in range(rounds):
        for case in _cases(device):
            if not is_installed(case):
                continue
            answer = ask_child(case)
            if isinstance(answer, str):
                say(f"{case.work}: {case.system} is left out: {answer}")
                continue
            say(f"round {index + 1} of {rounds}: {case.work}, {case.system}: {answer}")
            for twin, name in _twins(case):
                if name in answer:
                    known = next((one for one in values if _name(one) == _name(twin)), twin)
                    values.setdefault(known, []).append(answer[name])
    return summarise(values, baseline=PLAIN)


def _cases(device: str) -> list[Case]:
    found = []
    for work, todo in WORKS[device].items():
        for system, module, function, options, needs in _systems(has_images=not todo.vocabulary):
            arguments: dict[str, Any] = {"work": work, "device": device, **options}
            found.append(
                Case(work, system, todo.unit, _role(system), f"benchmarks._real_{module}", function,
                     arguments, needs, is_larger_better=True)
            )  # fmt: skip
    words = [word.strip() for word in os.environ.get("LUDUS_BENCH_ONLY", "").split(",")]
    return [one for one in found if any(word in f"{one.work} {one.system}" for word in words)]


def _systems(*, has_images: bool) -> list[tuple[str, str, str, dict[str, Any], tuple[str, ...]]]:
    # What ludus finds by itself where it is faster; a plain loop must be set to it.
    last = {"compiled": True, "channels_last": True}
    return [
        ("plain loop", "plain", "measure", {"compiled": False}, ()),
        (PLAIN, "plain", "measure", {"compiled": True}, ()),
        *([(f"{PLAIN}, channels last", "plain", "measure", last, ())] if has_images else []),
        ("lightning", "lightning", "measure", {"compiled": False}, ("lightning",)),
        ("lightning, compiled", "lightning", "measure", {"compiled": True}, ("lightning",)),
        ("huggingface", "huggingface", "measure", {"compiled": False}, ("transformers",)),
        ("huggingface, compiled", "huggingface", "measure", {"compiled": True}, ("transformers",)),
        ("ludus", "ludus", "measure", {"engine": "auto"}, ()),
        ("ludus, eager", "ludus", "measure", {"engine": "eager"}, ()),
        ("ludus, resumed", "ludus", "resumed", {"engine": "compiled"}, ()),
        ("ludus, eager, resumed", "ludus", "resumed", {"engine": "eager"}, ()),
    ]


def _role(system: str) -> Any:
    if system.startswith("ludus"):
        return "ludus"
    return "reference" if system.startswith("plain") else "peer"


def _twins(case: Case) -> list[tuple[Case, str]]:
    """Return the case for each thing that is measured of it."""
    kinds = {"rate": ("", case.unit, True), "memory": (", memory", "GiB", False)}
    kinds["resume"] = (", first step after a resume", "s", False)
    return [
        (
            Case(case.work + more, case.system, unit, case.role, case.module, case.function,
                 case.arguments, case.requires, is_larger_better=is_larger),
            name,
        )
        for name, (more, unit, is_larger) in kinds.items()
    ]  # fmt: skip


def _name(case: Case) -> tuple[str, str]:
    return case.work, case.system
