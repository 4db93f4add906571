"""The config of a fine-tuning job, from the hyperparameters of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ludus.config.migrations import VERSION
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from ludus.nn.transformers_models import LoraConfig
from ludus.text.jobs import Method
from ludus.text.tuning.config import TextTuningConfig
from ludus.text.tuning.sources import read_file

Auto = Literal["auto"]

_SMALL, _LARGE = 10_000_000, 1_000_000_000
"""Numbers of parameters: below the first a model is tiny, from the second on it is large."""
_RATES: Mapping[Method, tuple[float, float, float]] = {
    "supervised": (1e-3, 5e-5, 1e-5),
    "dpo": (3e-4, 1e-6, 5e-7),
}
"""The learning rate of tiny models, of those between, and of large ones."""
_LORA_FACTOR = 10.0


@dataclass(frozen=True)
class TuningJob:
    """A fine-tuning job; `auto` is resolved from the model and the number of examples."""

    model: Path
    """The directory of the model that is tuned."""
    training_file: Path
    """JSON lines, of conversations or of preferences."""
    method: Method
    seed: int
    validation_file: Path | None = None
    n_epochs: int | Auto = "auto"
    batch_size: int | Auto = "auto"
    learning_rate_multiplier: float | Auto = "auto"
    """The factor of the learning rate that suits a model of its size."""
    beta: float | Auto = "auto"
    """The weight of the reference model, for dpo."""
    nll_coef: float = 1.0
    """The coefficient of the cross-entropy of the chosen answers, for dpo."""
    lora: LoraConfig | None = None
    """Adapters to train in place of all weights."""
    keep_every_epochs: int = 0
    """Keep the weights every this many epochs as models/epoch_<n> of the run."""
    device: str = "cpu"


@dataclass(frozen=True)
class Hyperparameters:
    """The numbers of a job once nothing is auto."""

    n_epochs: int
    batch_size: int
    learning_rate_multiplier: float
    learning_rate: float
    beta: float | None
    """None unless the method is dpo."""


def resolve(job: TuningJob) -> Hyperparameters:
    """Return the hyperparameters of a job with every `auto` replaced; raise ConfigError for a bad one."""
    lines = read_file(job.training_file, "the training file").splitlines()
    num_examples = sum(bool(line.strip()) for line in lines)
    multiplier = 1.0 if job.learning_rate_multiplier == "auto" else job.learning_rate_multiplier
    batch_size = min(64, max(num_examples, 1)) if job.batch_size == "auto" else job.batch_size
    n_epochs = 3 if job.n_epochs == "auto" else job.n_epochs
    beta = 0.5 if job.beta == "auto" else job.beta
    given = {
        "n_epochs": n_epochs,
        "batch_size": batch_size,
        "learning_rate_multiplier": multiplier,
        "beta": beta,
    }
    for name, value in given.items():
        if not value > 0:
            raise ConfigError(f"the hyperparameter {name} is {value}; it is auto, or above 0")
    return Hyperparameters(
        n_epochs=n_epochs,
        batch_size=batch_size,
        learning_rate_multiplier=multiplier,
        learning_rate=multiplier * _base_rate(job),
        beta=beta if job.method == "dpo" else None,
    )


def _base_rate(job: TuningJob) -> float:
    """Return the learning rate that suits a model of this size: the smaller, the higher."""
    # Of weights in files of 4 bytes a parameter, or of 2, the order of magnitude is the same.
    size = sum(path.stat().st_size for path in job.model.glob("*.safetensors")) // 4
    tiny, between, large = _RATES[job.method]
    if job.lora is not None:
        return between * _LORA_FACTOR
    return tiny if size < _SMALL else between if size < _LARGE else large


def config_of(job: TuningJob) -> TextTuningConfig:
    """Return the complete config of a job."""
    found = resolve(job)
    method: dict[str, Any] = {"kind": job.method}
    if job.method == "dpo":
        method |= {"beta": found.beta, "nll_coef": job.nll_coef}
    validation = job.validation_file
    data = {
        "version": VERSION,
        "kind": "text_tuning",
        "name": "job",
        "seed": job.seed,
        "model": str(job.model.absolute()),
        "new_model": None,
        "lora": None if job.lora is None else job.lora.model_dump(),
        "data": {
            "kind": "lines",
            "path": str(job.training_file.absolute()),
            "validation_path": None if validation is None else str(validation.absolute()),
        },
        "method": method,
        "batch_size": found.batch_size,
        "max_epochs": found.n_epochs,
        "max_opt_steps": None,
        "accumulate": 1,
        "max_grad_norm": 1.0,
        "optimizer": {
            "kind": "adamw", "learning_rate": found.learning_rate, "beta1": 0.9, "beta2": 0.999,
            "eps": 1e-8, "weight_decay": 0.0,
        },
        "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
        "precision": "float32",
        "evaluate_every_epochs": 0 if validation is None else 1,
        "evaluation": {
            "metric": "train/epoch_loss", "mode": None, "keep": 0, "patience": None, "min_delta": 0.0,
            "stopping_metric": None, "stopping_mode": None, "target": None,
        },
        "keep_every_epochs": min(job.keep_every_epochs, found.n_epochs),
        "log_every_opt_steps": 1,
        "settings": _settings(job.device),
    }  # fmt: skip
    return validate(TextTuningConfig, data, source="the job")


def _settings(device: str) -> dict[str, Any]:
    return {
        "device": device, "threads": 1, "workers": 0, "deterministic": True, "display": "none",
        "loggers": [],
        "checkpoint": {
            "every_seconds": 30.0, "every_stages": 0, "every_opt_steps": 0, "every_epochs": 0,
            "keep_last": 2, "on_failure": "continue",
        },
    }  # fmt: skip
