"""Fine-tuning jobs as every provider understands them: what is asked for, and how it stands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Method = Literal["supervised", "dpo"]
Status = Literal["pending", "running", "paused", "succeeded", "failed", "cancelled"]
"""A status that a provider invents later counts as pending."""
ENDED: frozenset[Status] = frozenset({"succeeded", "failed", "cancelled"})
KEY_NAME = "ludus_key"
"""The name under which a job's key stands in its metadata."""


@dataclass(frozen=True)
class JobSpec:
    """A fine-tuning job to create."""

    model: str
    """The model that is tuned."""
    method: Method
    lines: bytes
    """The training file: JSON lines, of conversations (supervised) or of preferences (dpo)."""
    hyperparameters: Mapping[str, float | int]
    """n_epochs, batch_size, learning_rate_multiplier, and for dpo beta."""
    seed: int
    suffix: str
    """Part of the name of the tuned model, at most 64 characters."""
    scope: str
    """What distinguishes this job from another of the same contents: the run, iteration and group."""

    @property
    def key(self) -> str:
        """Return the hash that identifies the job: the same spec is never paid twice."""
        parts = {
            "model": self.model,
            "method": self.method,
            "lines": hashlib.sha256(self.lines).hexdigest(),
            "hyperparameters": dict(self.hyperparameters),
            "seed": self.seed,
            "scope": self.scope,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def num_examples(self) -> int:
        """Return the number of lines."""
        return self.lines.count(b"\n")


@dataclass(frozen=True)
class Job:
    """A fine-tuning job as a provider reports it."""

    id: str
    status: Status
    model: str
    """The model that is tuned."""
    key: str | None
    """The key in its metadata, if it has one."""
    fine_tuned_model: str | None = None
    """The name of the tuned model, once the job has succeeded."""
    error: str | None = None
    """The whole error of a failed job."""
    trained_tokens: int | None = None
    created_at: int = 0
    """Seconds since 1970, by the provider's clock."""
    more: Mapping[str, str] = field(default_factory=dict)
    """What else the provider says, for people."""

    @property
    def has_ended(self) -> bool:
        """Return whether the status will not change again."""
        return self.status in ENDED
