"""Train a real network with ludus: the whole trainer, with log and checkpoints, `engine: auto`."""

import json
import subprocess
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import ludus
from benchmarks import _real_work as shared

# So many that compiling pays; the run is stopped when enough was timed.
NUM_STEPS = 50_000
NUM_BATCHES = 1_000


class RealModel(ludus.Model):
    """A network whose outputs and targets are rows, one for each token or image."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        """Return the loss."""
        inputs, targets = batch
        return {"loss": shared.loss_fn(self.module(inputs), targets)}


class Prepared(Dataset[Any]):
    """Batches that are on the device already, as many as an epoch of real data has."""

    def __init__(self, work: shared.Work, device: str) -> None:
        inputs, targets = shared.make_examples(work, device)
        whole = zip(inputs.split(work.batch_size), targets.split(work.batch_size), strict=True)
        self._batches = list(whole)

    def __len__(self) -> int:
        return NUM_BATCHES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._batches[index % len(self._batches)]


class Watch:
    """A callback that counts steps, and ends the run when there were enough."""

    def __init__(self, watch: shared.Stopwatch, *, most: int | None = None) -> None:
        self.watch, self._most = watch, most

    def after_train_step(self, run: ludus.Run) -> None:
        """Look at the watch; interrupt the run after so many steps."""
        if self.watch():
            run.stop("enough was timed")
        elif self._most is not None and self.watch.num_steps >= self._most:
            run.interrupted = True


def config_of(work: shared.Work, device: str, **changes: Any) -> Any:
    """Return the config of a run of nothing but training, of a network that a script gives."""
    own: dict[str, Any] = {
        "model": None, "precision": "bfloat16", "batch_size": work.batch_size,
        "evaluate_every_epochs": 0, "evaluation.patience": None, "evaluation.keep": 0, "ema_decay": None,
        "max_grad_norm": shared.MAX_GRAD_NORM,
        # Some lines are written while it is timed, the first one before.
        "log_every_opt_steps": 10, "optimizer.learning_rate": shared.LEARNING_RATE,
        "optimizer.weight_decay": shared.WEIGHT_DECAY,
        "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
        "settings.device": device, "settings.display": "plain",
        "settings.checkpoint.every_seconds": 600.0,
    }  # fmt: skip
    return ludus.example("supervised", **{**own, **changes})


def make_trainer(work: str, device: str, engine: str) -> Any:
    """Return the trainer of a work."""
    todo = shared.WORKS[device][work]
    config = config_of(todo, device, data=None, engine=engine, max_epochs=NUM_STEPS // NUM_BATCHES)
    # One "example" is a whole batch.
    loader: Any = DataLoader(Prepared(todo, device), batch_size=1, collate_fn=lambda rows: rows[0])
    trainer: Any = ludus.Trainer(config, train_loader=loader)
    trainer.set_model(RealModel(shared.make_network(todo, device)))
    return trainer


def measure(work: str, device: str, engine: str) -> dict[str, float]:
    """Return the rate, the memory and the time to the first step."""
    trainer = make_trainer(work, device, engine)
    watch = shared.Stopwatch(shared.WORKS[device][work], device)
    trainer.add(Watch(watch))
    result = trainer.fit(name="bench")
    assert watch.answer is not None
    for line in (trainer.run.files.read("events.jsonl", limit=1 << 20)).splitlines():
        event = json.loads(line)
        if event["event"] == "engine":
            print(event["reason"], file=sys.stderr)
    print(result.exact, trainer.config.engine, trainer.config.memory_format, file=sys.stderr)
    return watch.answer


def begin(work: str, device: str, engine: str) -> float:
    """Train a few steps and stop as Ctrl-C does."""
    trainer = make_trainer(work, device, engine)
    trainer.add(Watch(shared.Stopwatch(shared.WORKS[device][work], device), most=4))
    trainer.fit(name="resumed")
    return 0.0


def resumed(work: str, device: str, engine: str) -> dict[str, float]:
    """Return how long a resumed run takes to its first step, from the call of fit."""
    command = [sys.executable, "-m", "benchmarks._child", "benchmarks._real_ludus", "begin"]
    arguments = json.dumps({"work": work, "device": device, "engine": engine})
    subprocess.run([*command, arguments], check=True, stdout=sys.stderr)
    trainer = make_trainer(work, device, engine)
    watch = shared.Stopwatch(shared.WORKS[device][work], device)
    trainer.add(Watch(watch, most=2))
    start = time.perf_counter()
    trainer.fit(name="resumed", resume=True)
    assert watch.first_step_s > 0
    return {"resume": watch.first_step_s, "whole": time.perf_counter() - start}
