"""What each key of Hugging Face's models and texts does."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.data.sources.huggingface import HuggingFaceTexts
from ludus.nn.model import Model
from tests.keys.table import changes
from tests.supervised.small_huggingface import (
    BERT,
    CLASSIFIER,
    LORA,
    language,
    rows,
    texts,
    write_all,
)

MODEL = "model huggingface"
TEXTS = "dataset huggingface"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("huggingface")
    write_all(found)
    return found


def network(**changed: Any) -> Any:
    torch.manual_seed(0)
    return Model({**CLASSIFIER, **changed}).module.network


def adapted(folder: Path, **changed: Any) -> Any:
    return network(path=str(folder / "bert"), config={}, adapter={**LORA, **changed})


def trained(network: Any) -> list[str]:
    return [name for name, weight in network.named_parameters() if weight.requires_grad]


def splits(section: dict[str, Any]) -> Any:
    config = HuggingFaceTexts.Config.model_validate(copy.deepcopy(section))
    return HuggingFaceTexts(config).load(torch.Generator().manual_seed(0))


@changes(MODEL, "kind", "auto_class")
def test_the_class_that_is_named_makes_the_model(kind: str) -> None:
    assert type(network()).__name__ == "BertForSequenceClassification"
    other = network(auto_class="AutoModelForMaskedLM")
    assert type(other).__name__ == "BertForMaskedLM"


@changes(MODEL, "config")
def test_the_values_of_the_config_are_those_of_the_model(kind: str, folder: Path) -> None:
    assert network(config={**BERT, "num_labels": 5}).classifier.out_features == 5
    own = network(path=str(folder / "bert"), config={"hidden_dropout_prob": 0.3})
    assert own.config.hidden_dropout_prob == 0.3


@changes(MODEL, "path")
def test_the_weights_are_those_of_the_folder(kind: str, folder: Path) -> None:
    first, second = [network(path=str(folder / "bert"), config={}).state_dict() for _ in range(2)]
    random = network().state_dict()
    name = "classifier.weight"
    torch.manual_seed(5)
    assert torch.equal(first[name], second[name])
    from safetensors.torch import load_file

    assert torch.equal(first[name], load_file(folder / "bert" / "model.safetensors")[name])
    assert random[name].shape == first[name].shape


@changes(MODEL, "adapter", "adapter.kind")
def test_an_adapter_freezes_the_base(kind: str, folder: Path) -> None:
    assert len(trained(network())) == len([*network().parameters()])
    assert all("lora" in name or "modules_to_save" in name for name in trained(adapted(folder)))
    with pytest.raises(ConfigError, match="adapter"):
        adapted(folder, kind="prefix")


@changes(MODEL, "adapter.r", "adapter.alpha", "adapter.dropout")
def test_the_rank_the_scale_and_the_dropout_of_adapters(kind: str, folder: Path) -> None:
    layer = adapted(folder, r=3, alpha=6.0, dropout=0.5).base_model.model.bert.encoder.layer[0]
    query = layer.attention.self.query
    assert query.lora_A["default"].weight.shape == (3, 8)
    assert query.scaling["default"] == 2.0
    assert query.lora_dropout["default"].p == 0.5


@changes(MODEL, "adapter.target_modules", "adapter.modules_to_save", "adapter.bias")
def test_the_layers_that_are_named_learn(kind: str, folder: Path) -> None:
    names = trained(adapted(folder, target_modules=["key"], modules_to_save=["pooler"]))
    assert all(".key.lora_" in name or ".pooler.modules_to_save." in name for name in names)
    assert any("query.lora_" in name for name in trained(adapted(folder, target_modules=None)))
    biases = trained(adapted(folder, bias="all"))
    assert any(name.endswith("intermediate.dense.bias") for name in biases)


@changes(TEXTS, "kind", "path")
def test_rows_are_read_from_a_folder_or_a_file_alike(kind: str, folder: Path) -> None:
    expected = [splits(texts(folder, validation_fraction=0.0)).train[i] for i in range(24)]
    for name in ("rows.parquet", "rows.csv", "rows.jsonl"):
        found = splits(texts(folder, validation_fraction=0.0, path=str(folder / name))).train
        assert [found[i] for i in range(len(found))] == expected


@changes(TEXTS, "validation_path", "test_path", "validation_fraction", "test_fraction")
def test_rows_are_divided_by_fractions_or_by_files(kind: str, folder: Path) -> None:
    shares = splits(texts(folder, validation_fraction=0.25, test_fraction=0.5))
    assert [len(p) for p in (shares.train, shares.validation, shares.test)] == [6, 6, 12]
    test = str(folder / "rows" / "test")
    named = splits(texts(folder, validation_fraction=0.0, validation_path=test, test_path=test))
    assert [len(p) for p in (named.train, named.validation, named.test)] == [24, 6, 6]


@changes(TEXTS, "task", "label")
def test_labels_are_a_column_or_the_tokens_themselves(kind: str, folder: Path) -> None:
    part = splits(texts(folder, validation_fraction=0.0)).train
    batch = part.collate([part[0], part[3]])
    assert batch["labels"].tolist() == [1, 0]
    part = splits(language(folder, validation_fraction=0.0)).train
    batch = part.collate([part[0]])
    assert torch.equal(batch["labels"], batch["input_ids"])


@changes(TEXTS, "text", "tokenizer", "max_length", "padding")
def test_texts_are_tokenized_cut_and_padded(kind: str, folder: Path, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"validation_fraction": 0.0}
    part = splits(texts(folder, **whole)).train
    assert len(part[2]["input_ids"]) == len(rows()[2]["text"].split()) == 5
    assert part.collate([part[0], part[2]])["input_ids"].shape == (2, 5)
    pair = splits(texts(folder, text=["text", "other"], **whole)).train
    assert len(pair[2]["input_ids"]) == 6
    cut = splits(texts(folder, max_length=2, **whole)).train
    assert cut[2]["input_ids"] == part[2]["input_ids"][:2]
    padded = splits(texts(folder, padding="max_length", **whole)).train
    assert padded.collate([padded[0]])["input_ids"].shape == (1, 8)
    other = tmp_path / "tokenizer"
    other.mkdir()
    for file in (folder / "tokenizer").iterdir():
        told = json.loads(file.read_text())
        if file.name == "tokenizer.json":
            words = told["model"]["vocab"]
            words["the"], words["a"] = words["a"], words["the"]
        (other / file.name).write_text(json.dumps(told))
    swapped = splits(texts(folder, tokenizer=str(other), **whole)).train
    assert swapped[0]["input_ids"][0] == 10 != part[0]["input_ids"][0]
