"""A tiny model, saved once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.text.models.new_model import NewModelConfig, make_model


@pytest.fixture(scope="session")
def tiny_config() -> NewModelConfig:
    return NewModelConfig(
        kind="byte_llama",
        width=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        mlp_width=64,
        context=96,
        seed=3,
        embedding_std=0.5,
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, tiny_config: NewModelConfig) -> Path:
    """The directory of a tiny model; no test changes it."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    make_model(tiny_config, path)
    return path
