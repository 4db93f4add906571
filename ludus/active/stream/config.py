"""The config sections of streams: the stream, the retraining, and the link between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal
from warnings import warn

from pydantic import Field

from ludus.active.config import ActiveConfig
from ludus.active.drift.shifts import ShiftSection
from ludus.active.drift.trigger import TriggerConfig
from ludus.config.base import (
    Count,
    DatasetSection,
    FileConfig,
    Positive,
    PositiveFloat,
    StrictConfig,
    change,
    current,
    read_data,
    typed_file,
)
from ludus.config.registry import find, kinds
from ludus.core.errors import ConfigError, nearest
from ludus.nn.model import CLASS_LOSSES

_SHORTEST_SECRET = 16
_MAX_SECRET = 4096
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]


class LinkConfig(StrictConfig):
    """The connection between edge and datacenter, over loopback."""

    port: Annotated[int, Field(ge=1, le=65535)]
    """The port on 127.0.0.1 that the datacenter listens on."""
    secret_file: str | None
    """A file with the shared secret; null: it is in an environment variable."""
    secret_variable: str | None
    """The environment variable with the shared secret; null: it is in a file."""
    max_message_bytes: Positive
    """Maximum message size; a larger one is refused before it is read; weights and samples must fit."""
    timeout_seconds: PositiveFloat
    """Timeout of a whole message."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if (self.secret_file is None) == (self.secret_variable is None):
            yield "give one of 'secret_file' and 'secret_variable', and set the other to null"

    def secret(self) -> bytes:
        """Return the secret; raise ConfigError, which never shows it, if it is missing or too short."""
        if self.secret_file is not None:
            place = f"the file {self.secret_file}"
            try:
                with Path(self.secret_file).open("rb") as file:
                    found = file.read(_MAX_SECRET)
            except OSError as error:
                raise ConfigError(
                    f"'secret_file' is {self.secret_file}: {error.strerror}; `openssl rand -hex 32 >"
                    f" {self.secret_file}` makes one"
                ) from None
        else:
            place = f"the variable {self.secret_variable}"
            given = os.environb.get((self.secret_variable or "").encode())
            if given is None:
                raise ConfigError(
                    f"the variable {self.secret_variable} is not set; `export {self.secret_variable}="
                    "$(openssl rand -hex 32)` makes a secret: give both sides the same"
                )
            found = given
        found = found.strip()
        if len(found) < _SHORTEST_SECRET:
            raise ConfigError(
                f"{place} holds a secret of {len(found)} bytes; use {_SHORTEST_SECRET} or more, the same on"
                " both sides"
            )
        return found


class StreamConfig(StrictConfig):
    """A stream that a model predicts, and its drift detection."""

    name: FolderName
    """The name of its folder under the root."""
    seed: Count
    """The random seed; the same as in the datacenter's training, as it splits the data."""
    data: DatasetSection
    """The data set whose training examples are streamed; the same as in the datacenter's training, which
    tests on the others."""
    shift: ShiftSection
    """The class probabilities at each step."""
    num_steps: Positive
    """How many steps the stream has."""
    samples_per_step: Positive
    """Number of examples per step."""
    keep_samples: Positive
    """Number of latest examples kept, to be measured and sent."""
    send_samples: Positive
    """Maximum number of these, sampled at random each time, that are sent for retraining."""
    check_every_steps: Positive
    """Number of steps between state estimations, each over the examples since the last."""
    state_estimation_host: Literal["edge", "datacenter"]
    """Where the state is estimated: on the edge, or in the datacenter, which gets the predictions."""
    state_estimation: TriggerConfig | None
    """Drift detection, if the edge estimates; else null."""
    features_layer: str | None
    """The layer whose outputs are an example's features; null: the inputs of the last linear layer."""
    wait_for_update: bool
    """Whether the stream pauses until a retraining is done, which makes it reproducible; else it continues
    with the current model."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if (self.state_estimation is None) == (self.state_estimation_host == "edge"):
            setting = "null" if self.state_estimation is None else "given"
            yield (
                f"'state_estimation' is {setting}, and 'state_estimation_host' {self.state_estimation_host};"
                " give it where the edge estimates, and nowhere else"
            )
        if self.send_samples > self.keep_samples:
            yield (
                f"'send_samples' is {self.send_samples}, and {self.keep_samples} are kept; raise"
                " 'keep_samples'"
            )
        if (seen := self.check_every_steps * self.samples_per_step) > self.keep_samples:
            yield f"'keep_samples' is {self.keep_samples}, and {seen} come between two checks; raise it"


class RetrainingConfig(StrictConfig):
    """Retraining in a datacenter after drift."""

    name: FolderName
    """The name of its folder under the root; a datacenter that has begun resumes there."""
    training: ActiveConfig
    """The retraining: a complete config of active learning, whose pool is the samples sent."""
    state_estimation: TriggerConfig | None
    """Drift detection, if the datacenter estimates; else null."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if self.training.data is None:
            yield "'training.data' is null; validation and test examples come from there"
        if self.training.new_head is not None:
            yield (
                "'training.new_head' would give the model another last layer at each retraining; set it to"
                " null, and give each candidate the outputs that the stream needs"
            )
        if getattr(self.training.strategy, "members", 1) > 1:
            yield (
                "'training.strategy' trains a committee, and an edge is given one network; use a strategy"
                " without members, such as margin or bald"
            )
        if self.training.round_start == "checkpoint":
            yield (
                "'training.round_start' is checkpoint, and a retraining goes on from the weights that the"
                " edge has; use warm or cold"
            )
        if (kind := getattr(self.training.oracle, "kind", None)) != "known":
            yield (
                f"'training.oracle.kind' is {kind}, and samples come with their labels; use known"
            )
        if self.training.loss not in CLASS_LOSSES:
            yield (
                f"'training.loss' is {self.training.loss}, and a stream is of classes; use cross_entropy or"
                " binary_cross_entropy"
            )


def read_stream_config(
    path: str | Path, overrides: Sequence[str] = (), *, tell: Callable[[str], object] = warn
) -> FileConfig:
    """Return the typed config in a file of a program that `ludus stream` runs."""
    data = current(read_data(path), source=str(path))
    changed = change(data, overrides, source=str(path), tell=tell)
    kind = data.get("kind")
    if isinstance(kind, str) and kind in kinds("trainer"):
        raise ConfigError(
            f"{path}: a file of kind {kind} is a trainer's; `ludus train {path}` runs it, and"
            " `ludus new stream` prints one of a stream"
        )
    known = [one for one in kinds("program") if find("program", one).command == "stream"]
    if kind not in known:
        raise ConfigError(
            f"{path}: 'kind' is {kind!r}; a stream's is one of: {', '.join(known)}."
            f"{nearest(str(kind), known)}"
        )
    return typed_file(data, source=str(path), changed=changed)
