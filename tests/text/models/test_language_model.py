"""A saved model is the same model to ludus and to transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ludus.text.models.language_model import load_model
from ludus.text.models.new_model import NewModelConfig, make_model

TINY = NewModelConfig(
    kind="byte_llama",
    width=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    mlp_width=64,
    context=64,
    seed=3,
    embedding_std=0.02,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    make_model(TINY, path)
    return path


def test_a_loaded_model_has_the_weights_that_were_saved(directory: Path) -> None:
    made, loaded = make_model(TINY, directory), load_model(directory, name="tiny")
    own, other = made.module.state_dict(), loaded.module.state_dict()
    assert own.keys() == other.keys()
    assert all(torch.equal(own[name], other[name]) for name in own)
