"""Objects of the API, for the schema: bodies of requests are checked by them, and answers documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ludus.text.server.job_record import JobRequest

Auto = Literal["auto"]


def _whole(value: object) -> object:
    """Return 3.0 as 3, which are the same number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
MAX_METADATA = 16


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorDetail(BaseModel):
    """What was wrong with a request."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every error."""

    error: ErrorDetail


class ModelObject(BaseModel):
    """A model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int | None
    """The maximum number of tokens of prompt and sample together."""
    parent: str | None
    """The model that it was tuned from."""


class FileObject(BaseModel):
    """An uploaded file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str
    status_details: str | None
    expires_at: int | None


class Deleted(BaseModel):
    """That something was deleted."""

    id: str
    object: str
    deleted: bool


class JobObject(BaseModel):
    """A fine-tuning job."""

    id: str
    object: Literal["fine_tuning.job"]
    created_at: int
    finished_at: int | None
    model: str
    fine_tuned_model: str | None
    organization_id: str
    status: str
    hyperparameters: dict[str, Any]
    method: dict[str, Any]
    training_file: str
    validation_file: str | None
    result_files: list[str]
    trained_tokens: int | None
    seed: int
    error: dict[str, Any] | None
    estimated_finish: int | None
    integrations: list[Any]
    metadata: dict[str, str]


class EventObject(BaseModel):
    """What has happened to a job."""

    id: str
    object: Literal["fine_tuning.job.event"]
    created_at: int
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, Any]


class CheckpointObject(BaseModel):
    """A model that a job has kept."""

    id: str
    object: Literal["fine_tuning.job.checkpoint"]
    created_at: int
    fine_tuning_job_id: str
    fine_tuned_model_checkpoint: str
    step_number: int
    metrics: dict[str, float]


class _Page(BaseModel):
    object: Literal["list"]
    has_more: bool
    first_id: str | None
    last_id: str | None


class ModelPage(_Page):
    """Models."""

    data: list[ModelObject]


class FilePage(_Page):
    """Files, the newest first."""

    data: list[FileObject]


class JobPage(_Page):
    """Jobs, the newest first."""

    data: list[JobObject]


class EventPage(_Page):
    """Events of a job, the newest first."""

    data: list[EventObject]


class CheckpointPage(_Page):
    """Checkpoints of a job, the newest first."""

    data: list[CheckpointObject]


class HyperparametersBody(_Body):
    """How to tune; `auto` lets the server choose."""

    n_epochs: Annotated[int, Field(ge=1, le=1000), WHOLE] | Auto | None = None
    batch_size: Annotated[int, Field(ge=1, le=4096), WHOLE] | Auto | None = None
    learning_rate_multiplier: Annotated[float, Field(gt=0, le=1e6)] | Auto | None = None
    lora_rank: Annotated[int, Field(ge=1, le=1024), WHOLE] | None = None
    """An addition: train adapters of this rank (LoRA) alone, of a model of transformers."""


class DpoHyperparametersBody(HyperparametersBody):
    """How to tune on preferences."""

    beta: Annotated[float, Field(gt=0, le=100)] | Auto | None = None
    nll_coef: Annotated[float, Field(ge=0, le=100)] | Auto | None = None
    """An addition: the weight of the log-likelihood of the preferred answers."""


class SupervisedOptions(_Body):
    """Options of learning from conversations."""

    hyperparameters: HyperparametersBody | None = None


class DpoOptions(_Body):
    """Options of direct preference optimisation."""

    hyperparameters: DpoHyperparametersBody | None = None


class SupervisedMethodBody(_Body):
    """Learning from conversations."""

    type: Literal["supervised"]
    supervised: SupervisedOptions | None = None
    dpo: None = None


class DpoMethodBody(_Body):
    """Learning from preferences: direct preference optimisation."""

    type: Literal["dpo"]
    dpo: DpoOptions | None = None
    supervised: None = None


class CreateJob(_Body):
    """The body that creates a job."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    training_file: Annotated[str, Field(min_length=1, max_length=200)]
    validation_file: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    hyperparameters: HyperparametersBody | None = None
    """An earlier place of those of supervised jobs."""
    method: Annotated[SupervisedMethodBody | DpoMethodBody, Field(discriminator="type")] | None = (
        None
    )
    suffix: Annotated[str, Field(max_length=64)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**53), WHOLE] | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(min_length=1, max_length=64)],
                Annotated[str, Field(max_length=512)],
            ],
            Field(max_length=MAX_METADATA),
        ]
        | None
    ) = None
    integrations: Annotated[list[Any], Field(max_length=0)] | None = None

    def to_request(self) -> JobRequest:
        """Return what is asked for, without what is left to the server."""
        sections: list[HyperparametersBody | None] = [self.hyperparameters]
        if isinstance(self.method, SupervisedMethodBody) and self.method.supervised is not None:
            sections.append(self.method.supervised.hyperparameters)
        if isinstance(self.method, DpoMethodBody) and self.method.dpo is not None:
            sections.append(self.method.dpo.hyperparameters)
        chosen: dict[str, Any] = {}
        for section in sections:
            chosen |= {} if section is None else section.model_dump()
        return JobRequest(
            model=self.model,
            training_file=self.training_file,
            validation_file=self.validation_file,
            method="supervised" if self.method is None else self.method.type,
            hyperparameters={k: v for k, v in chosen.items() if v not in (None, "auto")},
            suffix=self.suffix or "",
            seed=self.seed,
            metadata=self.metadata or {},
        )


class MessageObject(BaseModel):
    """A sampled message."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChoiceObject(BaseModel):
    """A sample."""

    index: int
    message: MessageObject
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]
    token_ids: list[int] | None = None


class Usage(BaseModel):
    """The number of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """The samples of a request."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChoiceObject]
    usage: Usage
    service_tier: str
    prompt_token_ids: list[int] | None = None
