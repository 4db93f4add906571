"""What a training run, a session or a sampling session is: the records that survive a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ludus.text.server.tinker.lora import LoraShape
from ludus.text.server.tinker.places import folder_of


@dataclass(frozen=True)
class RunRecord:
    """What a training run was created as."""

    model_id: str
    base_model: str
    lora: LoraShape | None
    loaded_from: str | None = None
    """The path of the saved weights it began with."""
    with_optimizer: bool = False
    """Whether it began with the optimizer state saved with them."""

    @property
    def folder(self) -> str:
        """The name of its directory."""
        return folder_of(self.model_id)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RunRecord:
        """Return the record that `to_json` wrote."""
        lora = found["lora"]
        return cls(**{**found, "lora": None if lora is None else LoraShape(**lora)})


@dataclass(frozen=True)
class SamplerRecord:
    """What a sampling session samples from."""

    base_model: str
    model_path: str | None
    """The path of saved weights; None samples from the base model."""
    number: int
    """Its number in its session, from which come the seeds of samples that ask for none."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SamplerRecord:
        """Return the record that `to_json` wrote."""
        return cls(**found)
