"""Manifest of a checkpoint: its schema and seal; every field is checked before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ludus.core.errors import CheckpointError
from ludus.core.exactness import exact_word
from ludus.store.storage import Storage, is_log_name, is_safe_name
from ludus.store.strict_json import dump_json, parse_json

FORMAT = 2
MAX_MANIFEST = 4 << 20
# Fields missing in format 1, or in a checkpoint written outside a run.
_UNSAID: dict[str, Any] = {"run_id": None, "config_hash": None, "config": None, "log_hashes": {}}
# Fields written only if they are not empty.
_RARE: dict[str, Any] = {"more_bests": {}, "runners_up": [], "proof": None}


def _log_name(name: str) -> str:
    if not is_log_name(name):
        raise ValueError("is not the name of a log")
    return name


def _model_name(name: str) -> str:
    if not is_safe_name(name) or not name.startswith("models/"):
        raise ValueError("is not the name of a model")
    return name


Natural = Annotated[int, Field(ge=0, lt=2**63)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
SegmentName = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.safetensors$")]
LogName = Annotated[str, AfterValidator(_log_name)]
ScoreName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
ModelName = Annotated[str, AfterValidator(_model_name)]


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class FileNote(_Checked):
    """Size and hash of one file of the checkpoint."""

    bytes: Natural
    sha256: Sha256


class BestEntry(_Checked):
    """The best model so far; a trainer may add fields."""

    model_config = ConfigDict(extra="allow")

    metric: str
    score: float
    model: ModelName


class Proof(_Checked):
    """How a run was proved, and for what: see `store/proofs.py`."""

    by: Literal["verify", "overlap"]
    key: Sha256 | None
    code: Sha256 | None


class FirstManifest(_Checked):
    """Fields of manifest.json in format 1."""

    format: int
    number: Natural
    files: dict[Literal["state.json", "tensors.safetensors"], FileNote]
    """Every file of the directory but this one."""
    segments: list[SegmentName]
    """Segments that the state refers to, in order; a segment's name is its hash."""
    models: dict[ModelName, Sha256]
    """Models that the state refers to, each with the hash of its model.json."""
    offsets: dict[LogName, Natural]
    """Length of each append-only file."""
    fingerprint: dict[str, str]
    exact: bool | Literal["proved", "expected", "no"]
    """`proved`, `expected` or `no`; true or false in older files."""
    inexact_because: list[str]
    best: BestEntry | None
    seal: Sha256
    """Hash of all other fields, so that no change goes undetected."""


class Manifest(FirstManifest):
    """Fields of manifest.json."""

    run_id: RunId | None
    """The run it belongs to, as run.json names it."""
    config_hash: Sha256 | None
    config: dict[str, Any] | None
    """Config that the run was trained with so far: all keys but its name and its settings."""
    log_hashes: dict[LogName, Sha256]
    """Hash of each append-only file up to its offset."""
    more_bests: dict[ScoreName, BestEntry] = {}
    """The best model by each further score, by the score's name."""
    runners_up: list[BestEntry] = []
    """The models kept besides the best ones, score by score, the best first."""
    proof: Proof | None = None


_FORMATS: dict[int, type[FirstManifest]] = {1: FirstManifest, FORMAT: Manifest}


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with their seal; raise CheckpointError unless they form a complete manifest."""
    manifest = {"format": FORMAT, **_UNSAID, **fields}
    manifest["seal"] = _seal(manifest)
    check_manifest(manifest, source="the manifest")
    return manifest


def _seal(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(dump_json(fields)).hexdigest()


def check_manifest(data: object, *, source: str) -> dict[str, Any]:
    """Return the manifest, of any format, with every field; raise CheckpointError if it is invalid."""
    given = data.get("format") if isinstance(data, dict) else FORMAT
    if type(given) is not int or given not in _FORMATS:
        raise CheckpointError(
            f"{source} has format {str(given)[:40]!r}, this ludus reads {FORMAT}; update ludus"
        )
    try:
        _FORMATS[given].model_validate(data)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])[:80] or "it"
        raise CheckpointError(f"{source} is not a manifest: {place}: {problem['msg']}") from None
    assert isinstance(data, dict)
    if data["seal"] != _seal({name: value for name, value in data.items() if name != "seal"}):
        raise CheckpointError(f"{source} has changed since it was written")
    # Present fields keep their order, because the seal depends on it.
    unsaid = {name: value for name, value in {**_UNSAID, **_RARE}.items() if name not in data}
    return {**data, **unsaid, "exact": exact_word(data["exact"])}


def read_manifest(storage: Storage, number: int) -> dict[str, Any]:
    """Return the manifest of a checkpoint, validated field by field."""
    name = f"checkpoints/{number:010d}/manifest.json"
    manifest = check_manifest(
        parse_json(storage.read(name, limit=MAX_MANIFEST), source=name), source=name
    )
    if manifest["number"] != number:
        raise CheckpointError(f"{name} says it is number {manifest['number']}")
    return manifest
