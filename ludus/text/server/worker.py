"""Worker process of fine-tuning jobs: runs one after the other, with everything imported once."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ludus.nn.transformers_models import LoraConfig
from ludus.process import talk
from ludus.process.child_main import Answer, Handler
from ludus.store.lock import is_locked
from ludus.text.tuning.job import TuningJob, TuningProgress, Wish, resolve, run_job

_PATIENCE = 30.0
"""Seconds in which a killed worker must have let go of its run."""


def handlers() -> dict[str, Handler]:
    """Return the requests that this process handles."""
    return {"tune": _tune, "stop": lambda header, pieces: ({"heard": True}, ())}


def _tune(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    task = header["task"]
    directory = Path(task["directory"])
    torch.set_num_threads(task["num_threads"])
    job = job_of(task)
    _wait_for_lock(directory)
    outcome = run_job(job, directory, on_progress=_tell, wish=_Wish())
    used = {name: value for name, value in asdict(resolve(job)).items() if name in _SHOWN}
    return {
        "status": outcome.status,
        "directory": None if outcome.directory is None else str(outcome.directory),
        "trained_tokens": outcome.trained_tokens,
        "hyperparameters": {name: value for name, value in used.items() if value is not None},
    }, ()


_SHOWN = ("n_epochs", "batch_size", "learning_rate_multiplier", "beta")


def job_of(task: dict[str, Any]) -> TuningJob:
    """Return the job of a task."""
    chosen = dict(task["hyperparameters"])
    rank = chosen.pop("lora_rank", None)
    validation = task["validation"]
    return TuningJob(
        model=Path(task["model"]),
        training_file=Path(task["training"]),
        validation_file=None if validation is None else Path(validation),
        method=task["method"],
        seed=task["seed"],
        lora=None if rank is None else _adapters(rank),
        device=task["device"],
        **chosen,
    )


def _adapters(rank: int) -> LoraConfig:
    return LoraConfig(
        kind="lora",
        r=rank,
        alpha=2.0 * rank,
        dropout=0.0,
        target_modules=None,
        modules_to_save=[],
        bias="none",
    )


def _tell(progress: TuningProgress) -> None:
    talk.say({"progress": {**asdict(progress), "metrics": dict(progress.metrics)}})


class _Wish:
    """Whether the job is to go on: until the server says stop."""

    def __init__(self) -> None:
        self._is_stopping = False

    def __call__(self) -> Wish:
        while not self._is_stopping and talk.is_addressed():
            talk.hear()
            talk.say({"heard": True})
            self._is_stopping = True
        return "pause" if self._is_stopping else "go_on"


def _wait_for_lock(directory: Path) -> None:
    """Wait for a worker that was killed a moment ago, and may still hold the run."""
    until = time.monotonic() + _PATIENCE
    while directory.is_dir() and is_locked(directory) and time.monotonic() < until:
        time.sleep(0.05)
