"""A saved model is the same model when it is loaded, and every wrong directory is reported in a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ludus.core.errors import ConfigError, LudusError
from ludus.store.tensors import read_tensors, write_tensors
from ludus.text.models.language_model import load_model, save_model
from ludus.text.models.llama import Llama, LlamaShape, initialise
from ludus.text.models.new_model import NewModelConfig, make_model


def test_a_loaded_model_has_the_weights_that_were_saved(tiny: Path, tmp_path: Path) -> None:
    model = load_model(tiny, name="tiny")
    save_model(model, tmp_path / "copy")
    again = load_model(tmp_path / "copy", name="copy")
    own, other = model.module.state_dict(), again.module.state_dict()
    assert own.keys() == other.keys()
    assert all(torch.equal(own[name], other[name]) for name in own)
    assert (again.context, again.num_logits) == (96, 264)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "copy" / name).read_bytes() == (tiny / name).read_bytes()


def test_the_seed_decides_the_weights(
    tiny_config: NewModelConfig, tiny: Path, tmp_path: Path
) -> None:
    make_model(tiny_config, tmp_path / "same")
    make_model(tiny_config.replace(seed=4), tmp_path / "other")
    saved = (tiny / "model.safetensors").read_bytes()
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == saved
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != saved


def test_embeddings_have_the_standard_deviation_asked_for(
    tiny_config: NewModelConfig, tmp_path: Path
) -> None:
    model = make_model(tiny_config.replace(embedding_std=0.02), tmp_path / "small")
    assert isinstance(model.module, Llama)
    assert model.module.output_weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_padding_on_the_right_changes_no_logits(tiny: Path) -> None:
    model = load_model(tiny, name="tiny")
    tokens = torch.randint(0, 264, (3, 20), generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(tokens, (0, 12), value=261)
    with torch.no_grad():
        plain, wider = model.logits(tokens), model.logits(padded, torch.tensor([20, 20, 20]))
    torch.testing.assert_close(wider[:, :20], plain)


def test_attention_looks_back_only(tiny: Path) -> None:
    model = load_model(tiny, name="tiny")
    tokens = torch.arange(30)[None]
    changed = tokens.clone()
    changed[0, 20] = 200
    with torch.no_grad():
        before, after = model.logits(tokens)[0], model.logits(changed)[0]
    torch.testing.assert_close(after[:20], before[:20])
    assert not torch.allclose(after[20:], before[20:])


def test_untied_embeddings_are_saved_with_an_output_layer(tiny: Path, tmp_path: Path) -> None:
    model = load_model(tiny, name="tiny")
    shape = LlamaShape(264, 16, 1, 2, 2, 8, 32, 64, is_tied=False)
    model.module = Llama(shape)
    initialise(model.module, torch.Generator().manual_seed(0), embedding_std=0.02)
    save_model(model, tmp_path / "untied")
    assert "lm_head.weight" in read_tensors(tmp_path / "untied" / "model.safetensors")
    again = load_model(tmp_path / "untied", name="untied")
    assert isinstance(again.module, Llama)
    assert torch.equal(again.module.output_weight, model.module.lm_head.weight)


def test_an_earlier_model_is_replaced_and_a_users_directory_is_not(
    tiny: Path, tmp_path: Path
) -> None:
    model = load_model(tiny, name="tiny")
    save_model(model, tmp_path / "model")
    save_model(model, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds notes\.txt, which is no part of a model"):
        save_model(model, tmp_path / "model")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="is no directory"):
        save_model(model, tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with pytest.raises(ConfigError, match="is no directory"):
        save_model(model, tmp_path / "link")


def _without_config(path: Path) -> None:
    (path / "config.json").unlink()


def _pickled(path: Path) -> None:
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def _cut(path: Path) -> None:
    (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:5000])


def _gguf(path: Path) -> None:
    (path / "weights.gguf").write_bytes(b"GGUF")


def _not_json(path: Path) -> None:
    (path / "config.json").write_text("{")


def _narrower(path: Path) -> None:
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(values | {"intermediate_size": 32}))


def _without_width(path: Path) -> None:
    values = json.loads((path / "config.json").read_text())
    del values["hidden_size"]
    (path / "config.json").write_text(json.dumps(values))


def _without_a_weight(path: Path) -> None:
    weights = read_tensors(path / "model.safetensors")
    del weights["model.norm.weight"]
    write_tensors(path / "model.safetensors", weights)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (shutil.rmtree, "is not a directory here; .* nothing is downloaded"),
        (_without_config, "has no config.json"),
        (_pickled, r"has its weights pickled \(pytorch_model.bin\); only safetensors are read"),
        (_cut, "is not a whole safetensors file"),
        (_gguf, "is a GGUF file or holds one, which is not read"),
        (_not_json, "not readable as JSON"),
        (_narrower, r"mlp.gate_proj.weight is \(64, 32\), not \(32, 32\)"),
        (_without_width, "is not the config of a Llama model: KeyError"),
        (_without_a_weight, "it lacks model.norm.weight"),
    ],
)
def test_a_directory_that_cannot_be_loaded_is_reported(
    spoil: Callable[[Path], None], sentence: str, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    shutil.copytree(tiny, path)
    spoil(path)
    with pytest.raises(LudusError, match=sentence):
        load_model(path, name="model")


def test_the_name_of_a_repository_is_never_downloaded() -> None:
    with pytest.raises(ConfigError, match="is not a directory here"):
        load_model("HuggingFaceTB/SmolLM2-135M-Instruct", name="smol")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"width": 20}, r"each of the heads needs an even part of 'width' \(20\)"),
        ({"num_kv_heads": 3}, r"'num_kv_heads' is 3, which does not divide 'num_heads' \(4\)"),
    ],
)
def test_shapes_that_do_not_fit_together_are_reported(
    changes: dict[str, int], sentence: str, tiny_config: NewModelConfig
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        tiny_config.replace(**changes)
