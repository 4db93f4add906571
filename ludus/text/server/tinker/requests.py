"""The bodies of requests of Tinker's API, as its SDK 0.38 and earlier JSON clients send them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from ludus.core.errors import LudusError

Seq = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=1, le=1024)]


class RequestRefused(LudusError):
    """A request that cannot be done, with the HTTP status of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class RequestBody(BaseModel):
    """A request body; a field that the server does not know is refused, never dropped in silence."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False
    )

    type: str | None = None


class CreateSession(RequestBody):
    """Opens a session: what owns models and sampling sessions."""

    tags: list[str] = []
    user_metadata: dict[str, Any] | None = None
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None


class Heartbeat(RequestBody):
    """Keeps a session alive."""

    session_id: str


class Lora(RequestBody):
    """Low-rank adapters to train instead of the weights."""

    rank: Annotated[int, Field(ge=1, le=4096)]
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class CreateModel(RequestBody):
    """Creates a training run; without `lora_config` all weights are trained."""

    session_id: str
    model_seq_id: Seq
    base_model: str
    user_metadata: dict[str, Any] | None = None
    lora_config: Lora | None = None
    optimizer_config: dict[str, Any] = {"type": "adamw"}


class ModelRequest(RequestBody):
    """Names a training run."""

    model_id: str


class Tensor(RequestBody):
    """A tensor of a datum."""

    data: list[int] | list[float]
    dtype: Literal["float32", "int64"]
    shape: list[int] | None = None
    sparse_crow_indices: list[int] | None = None
    sparse_col_indices: list[int] | None = None

    # Numbers that are not finite are named with their place when the datum is read.
    model_config = ConfigDict(allow_inf_nan=True)


class Chunk(BaseModel):
    """A piece of the input of a model; only text is supported here."""

    type: str = "encoded_text"
    tokens: list[int] | None = None


class ModelInput(RequestBody):
    """The tokens that a model reads."""

    chunks: list[Chunk]

    def ints(self, what: str) -> list[int]:
        """Return all tokens; raise RequestRefused if a chunk is no text."""
        found: list[int] = []
        for chunk in self.chunks:
            if chunk.type != "encoded_text" or chunk.tokens is None:
                raise RequestRefused(
                    f"{what} has a chunk of type {chunk.type!r}; this server reads text alone"
                )
            found += chunk.tokens
        return found


class DatumBody(BaseModel):
    """An example with the inputs of its loss."""

    model_input: ModelInput
    loss_fn_inputs: dict[str, Tensor]


class ForwardBackwardInput(RequestBody):
    """A batch and its loss."""

    data: list[DatumBody]
    loss_fn: str
    loss_fn_config: dict[str, float | str] | None = None


class ForwardBackward(RequestBody):
    """Adds the gradient of a batch, or computes its log-probabilities alone."""

    forward_backward_input: Annotated[
        ForwardBackwardInput,
        Field(validation_alias=AliasChoices("forward_backward_input", "forward_input")),
    ]
    model_id: str
    seq_id: Seq | None = None
    forward_only: bool = False


class AdamParams(RequestBody):
    """The numbers of one step of AdamW; the defaults are those of the SDK."""

    learning_rate: Annotated[float, Field(ge=0)] = 1e-4
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[float, Field(gt=0)] = 1e-12
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    grad_clip_norm: float = 0.0
    """The maximum norm of the gradient; 0 clips nothing."""


class OptimStep(RequestBody):
    """Takes one optimizer step along the accumulated gradient."""

    adam_params: Annotated[
        AdamParams, Field(validation_alias=AliasChoices("adam_params", "optim_params"))
    ]
    model_id: str
    seq_id: Seq | None = None


class SaveWeights(RequestBody):
    """Saves the state of training under a name."""

    model_id: str
    path: str | None = None
    seq_id: Seq | None = None
    ttl_seconds: int | None = None
    overwrite: bool = False
    user_metadata: dict[str, str] | None = None


class SaveForSampler(RequestBody):
    """Saves weights to sample from: under a name, or for a sampling session that is opened at once."""

    model_id: str
    path: str | None = None
    sampling_session_seq_id: Seq | None = None
    kind: Literal["snapshot", "inflight"] = "snapshot"
    seq_id: Seq | None = None
    ttl_seconds: int | None = None
    user_metadata: dict[str, str] | None = None


class LoadWeights(RequestBody):
    """Loads a saved state into a training run, or creates one from it."""

    model_id: str | None = None
    seq_id: Seq | None = None
    session_id: str | None = None
    model_seq_id: Seq | None = None
    base_model: str | None = None
    user_metadata: dict[str, Any] | None = None
    path: str
    optimizer: bool = False
    optimizer_config: dict[str, Any] | None = None
    weights_access_token: str | None = None


class CreateSamplingSession(RequestBody):
    """Opens a sampling session on a base model or on saved weights."""

    session_id: str
    sampling_session_seq_id: Seq
    base_model: str | None = None
    model_path: str | None = None


class SamplingParams(RequestBody):
    """How to sample."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    stop: str | list[str] | list[int] | None = None
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_k: int = -1
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0


class SampleBody(RequestBody):
    """Samples that continue a prompt."""

    num_samples: Count = 1
    prompt: ModelInput
    sampling_params: SamplingParams
    base_model: str | None = None
    model_path: str | None = None
    sampling_session_id: str | None = None
    seq_id: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    target_prompt_logprobs: Any = None
    prompt_alt_tokens_k: int = 0
    prompt_logprobs_last_n: int | None = None
    record_stability_info: bool | None = None


class RetrieveFuture(RequestBody):
    """Asks for the outcome of a request."""

    request_id: str
    allow_metadata_only: bool = False


class WeightsInfo(RequestBody):
    """Asks what is needed to load saved weights."""

    tinker_path: str


B = TypeVar("B", bound=RequestBody)


def read_body(kind: type[B], data: object) -> B:
    """Return the typed body; raise RequestRefused with one sentence that names the first mistake."""
    if not isinstance(data, dict):
        raise RequestRefused("the body of the request must be a JSON object")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestRefused(f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
