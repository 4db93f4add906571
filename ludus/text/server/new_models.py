"""New models of a server, by a preset or a file: NAME, NAME=PRESET or NAME=FILE.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ludus.config import strict_yaml
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, nearest
from ludus.text.models.new_model import NewModelConfig

_CONTEXT = 1024
PRESETS: Mapping[str, Mapping[str, int]] = {
    "tiny": {"width": 64, "num_layers": 2, "num_heads": 4, "mlp_width": 128},
    "small": {"width": 128, "num_layers": 4, "num_heads": 4, "mlp_width": 256},
    "medium": {"width": 256, "num_layers": 6, "num_heads": 8, "mlp_width": 768},
}
"""By name, the shape of a model; its tokens are bytes, and its weights random."""


def new_model(text: str) -> tuple[str, NewModelConfig]:
    """Return the name and the config of a new model that a command line asks for."""
    name, _, chosen = text.partition("=")
    chosen = chosen or "tiny"
    if not name:
        raise ConfigError(f"--new-model {text!r} has no name; write NAME, NAME=PRESET or NAME=FILE")
    if chosen in PRESETS:
        return name, preset(chosen)
    path = Path(chosen)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(
            f"--new-model {name}: there is no preset '{chosen}'.{nearest(chosen, PRESETS)} Or give a .yaml"
        )
    try:
        data = strict_yaml.parse(path.read_bytes(), source=chosen)
    except OSError as error:
        raise ConfigError(
            f"--new-model {name}: {chosen} cannot be read: {error.strerror}"
        ) from None
    return name, validate(NewModelConfig, data, source=chosen)


def preset(name: str) -> NewModelConfig:
    """Return the config of a preset."""
    shape = PRESETS[name]
    return NewModelConfig(
        kind="byte_llama",
        width=shape["width"],
        num_layers=shape["num_layers"],
        num_heads=shape["num_heads"],
        num_kv_heads=shape["num_heads"],
        mlp_width=shape["mlp_width"],
        context=_CONTEXT,
        seed=0,
        embedding_std=0.02,
    )


def given_model(text: str) -> tuple[str, Path]:
    """Return the name and the directory of a model that a command line asks for."""
    name, _, directory = text.partition("=")
    if not name or not directory:
        raise ConfigError(f"--model {text!r}: write NAME=DIRECTORY")
    return name, Path(directory)
