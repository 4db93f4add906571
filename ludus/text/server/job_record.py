"""Record of a fine-tuning job: what was asked for, how it stands, and its object in the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ludus.text.jobs import KEY_NAME, Job, Status

ServerStatus = Literal[
    "validating_files",
    "queued",
    "running",
    "pausing",
    "paused",
    "succeeded",
    "failed",
    "cancelled",
]
OPEN: frozenset[ServerStatus] = frozenset({"validating_files", "queued", "running", "pausing"})
"""A job of these statuses goes on without being asked to."""
ENDED: frozenset[ServerStatus] = frozenset({"succeeded", "failed", "cancelled"})
_STATUSES: Mapping[ServerStatus, Status] = {
    "validating_files": "pending",
    "queued": "pending",
    "running": "running",
    "pausing": "running",
    "paused": "paused",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
}
Method = Literal["supervised", "dpo"]
Number = int | float


@dataclass(frozen=True)
class JobRequest:
    """What a client asks for, checked; `auto` values are left out."""

    model: str
    training_file: str
    validation_file: str | None
    method: Method
    hyperparameters: Mapping[str, Number]
    suffix: str
    seed: int | None
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class JobError:
    """Why a job failed."""

    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True)
class JobRecord:
    """A job of the server; a change makes another record."""

    id: str
    number: int
    """Its place in the order of creation."""
    created_at: int
    request: JobRequest
    digest: str
    """Hash of the request, to notice an idempotency key that is used for another one."""
    seed: int
    tuned_model: str
    """The name that the tuned model gets."""
    status: ServerStatus = "validating_files"
    error: JobError | None = None
    finished_at: int | None = None
    trained_tokens: int | None = None
    hyperparameters: Mapping[str, Number] = field(default_factory=dict)
    """Those that were used, once the training file is read."""
    num_crashes: int = 0
    """How often its worker has died in a row without taking a step."""
    crashed_at_step: int = 0

    @property
    def has_ended(self) -> bool:
        """Return whether the status will not change again."""
        return self.status in ENDED

    def to_json(self) -> dict[str, Any]:
        """Return the object of the API."""
        request = self.request
        used: dict[str, Any] = dict.fromkeys(
            ("n_epochs", "batch_size", "learning_rate_multiplier"), "auto"
        )
        used |= {**request.hyperparameters, **self.hyperparameters}
        is_done = self.status == "succeeded"
        error = self.error
        return {
            "id": self.id,
            "object": "fine_tuning.job",
            "created_at": self.created_at,
            "finished_at": self.finished_at,
            "model": request.model,
            "fine_tuned_model": self.tuned_model if is_done else None,
            "organization_id": "ludus",
            "status": self.status,
            "hyperparameters": used if request.method == "supervised" else {},
            "method": {"type": request.method, request.method: {"hyperparameters": used}},
            "training_file": request.training_file,
            "validation_file": request.validation_file,
            "result_files": [],
            "trained_tokens": self.trained_tokens,
            "seed": self.seed,
            "error": None
            if error is None
            else {"code": error.code, "message": error.message, "param": error.param},
            "estimated_finish": None,
            "integrations": [],
            "metadata": dict(request.metadata),
        }

    def to_job(self) -> Job:
        """Return it as every provider reports a job."""
        return Job(
            self.id,
            _STATUSES[self.status],
            self.request.model,
            self.request.metadata.get(KEY_NAME),
            fine_tuned_model=self.tuned_model if self.status == "succeeded" else None,
            error=None if self.error is None else self.error.message,
            trained_tokens=self.trained_tokens,
            created_at=self.created_at,
        )

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> JobRecord:
        """Return the record that `dataclasses.asdict` made."""
        error = found.pop("error")
        return cls(
            request=JobRequest(**found.pop("request")),
            error=None if error is None else JobError(**error),
            **found,
        )
