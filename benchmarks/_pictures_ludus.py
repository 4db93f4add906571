"""Train a ResNet-50 with ludus from a folder of JPEG files, and see how busy the GPU is."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.profiler import ProfilerActivity, profile

import ludus
from benchmarks import _real_work as shared
from benchmarks._real_ludus import config_of
from ludus.data.batches.memory import make_batches
from ludus.data.sources.image_folder import ImageFolder

NUM_FILES = 2048
"""How many different pictures are written; each has several names, so that an epoch is long."""
NUM_NAMES = 16
SIDE = 256
NUM_CLASSES = 8
NUM_PROFILED = 40


class Watch:
    """A callback that times steps, then profiles some more, and ends the run."""

    def __init__(self, work: shared.Work, device: str) -> None:
        self.stopwatch = shared.Stopwatch(work, device)
        self.busy = float("nan")
        self._profile: profile | None = None
        self._left = NUM_PROFILED
        self._has_gpu = device == "cuda"

    def after_train_step(self, run: ludus.Run) -> None:
        """Look at the watch, then at the profile."""
        if self.stopwatch.answer is None:
            if self.stopwatch() and not self._has_gpu:
                run.stop("enough was timed")
            return
        if self._profile is None:
            self._profile = profile(activities=[ProfilerActivity.CUDA])
            self._profile.__enter__()
        self._left -= 1
        if self._left == 0:
            torch.cuda.synchronize()
            self._profile.__exit__(None, None, None)
            self.busy = busy_share(self._profile)
            run.stop("enough was timed")


def busy_share(profiled: profile) -> float:
    """Return the share of the time between the first and the last kernel in which one was running."""
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiled.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
        and not event.name.startswith(("Memcpy", "Memset"))
    )
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy / (reached - spans[0][0])


def write_pictures(folder: Path) -> None:
    """Write smooth random pictures, as large as those that ImageNet is often stored as."""
    generator = np.random.default_rng(0)
    for index in range(NUM_FILES):
        place = folder / f"class_{index % NUM_CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        first = place / f"{index:05}.jpg"
        picture.save(first, quality=90)
        for name in range(1, NUM_NAMES):
            os.link(first, place / f"{index:05}-{name}.jpg")


def section(folder: Path) -> dict[str, Any]:
    """Return the data section: crops and flips as ResNets are trained with."""
    return {
        "kind": "image_folder", "path": str(folder), "validation_fraction": 0.0,
        "test_fraction": 0.0, "height": 224, "width": 224, "channels": 3, "resize": 256,
        "random_crop": {"scale": [0.08, 1.0], "ratio": [0.75, 1.333]}, "horizontal_flip": 0.5,
        "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "broken": "skip",
    }  # fmt: skip


def make_config(work: shared.Work, device: str, workers: int, folder: Path) -> Any:
    """Return the config of the run."""
    return config_of(
        work,
        device,
        data=section(folder),
        engine="compiled" if device == "cuda" else "eager",
        memory_format="channels_last",
        drop_last=True,
        max_epochs=100,
        **{"settings.workers": workers},
    )


def measure(work: str, device: str, workers: int) -> dict[str, float]:
    """Return the rate of training and, on a GPU, the share of the time in which it computes."""
    write_pictures(Path("pictures"))
    todo = shared.WORKS[device][work]
    trainer: Any = ludus.build_trainer(make_config(todo, device, workers, Path("pictures")))
    trainer.set_model(ludus.Model(shared.make_network(todo, device), loss="cross_entropy"))
    watch = Watch(todo, device)
    trainer.add(watch)
    trainer.fit(name="bench")
    assert watch.stopwatch.answer is not None
    found = {"rate": watch.stopwatch.answer["rate"]}
    return found if device == "cpu" else {**found, "busy": 100 * watch.busy}


def read_only(work: str, device: str, workers: int) -> dict[str, float]:
    """Return how many pictures a second are read, decoded and uploaded when nothing is trained."""
    write_pictures(Path("pictures"))
    todo = shared.WORKS[device][work]
    config = make_config(todo, device, workers, Path("pictures"))
    dataset = ImageFolder(config.data).load(torch.Generator().manual_seed(0)).train
    batches: Any = make_batches(
        dataset, batch_size=todo.batch_size, shuffle=True, drop_last=True, workers=workers,
        device=torch.device(device), seed=0,
    )  # fmt: skip
    batches.start(0)
    for _ in range(shared.NUM_WARM_STEPS):
        batches.next()
    start = time.perf_counter()
    for _ in range(todo.num_steps):
        batches.next()
    if device == "cuda":
        torch.cuda.synchronize()
    rate = todo.num_steps * todo.batch_size / (time.perf_counter() - start)
    batches.close()
    return {"rate": rate}
