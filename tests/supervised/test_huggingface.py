"""Models of transformers with PEFT adapters, and texts of datasets, from configs and from scripts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import CheckpointError, ConfigError
from ludus.nn.model import Model
from ludus.testing.trainers import check_kill_anywhere
from tests.supervised.conftest import history
from tests.supervised.small_huggingface import (
    BERT,
    CLASSIFIER,
    GPT2,
    LANGUAGE_MODEL,
    LORA,
    language,
    small,
    texts,
    write_all,
    write_tokenizer,
)

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("huggingface")
    write_all(found)
    return found


def with_adapter(folder: Path, **changed: Any) -> dict[str, Any]:
    return {
        **CLASSIFIER,
        "path": str(folder / "bert"),
        "config": {},
        "adapter": {**LORA, **changed},
    }


def is_adapter_alone(weights: dict[str, Any]) -> bool:
    """Return whether these are trained weights, buffers, and the digest of the base."""
    known = (".lora_", ".modules_to_save.", "_ids", "base_digest")
    return all(any(word in name for word in known) for name in weights)


def test_a_classifier_learns_from_texts_with_a_config_alone(folder, tmp_path) -> None:
    config = small(texts(folder), CLASSIFIER, max_epochs=20)
    result = ludus.Trainer(config).fit(root=tmp_path)
    losses = history(result.run_dir, "train/epoch_loss")
    assert losses[-1] < 0.7 * losses[0]
    assert history(result.run_dir, "validation/epoch_accuracy")


def test_a_language_model_with_tied_weights_learns(folder, tmp_path) -> None:
    trainer = ludus.Trainer(small(language(folder), LANGUAGE_MODEL, max_epochs=6))
    losses = history(trainer.fit(root=tmp_path).run_dir, "train/epoch_loss")
    assert losses[-1] < 0.9 * losses[0]
    network = trainer.model.module.network
    assert network.lm_head.weight is network.transformer.wte.weight
    assert "network.lm_head.weight" not in trainer.weights()


def test_padding_is_no_target_even_where_texts_end_with_the_same_token(folder) -> None:
    from ludus.data.sources.huggingface import HuggingFaceTexts

    section = HuggingFaceTexts.Config.model_validate(language(folder))
    part = HuggingFaceTexts(section).load(torch.Generator()).train
    batch = part.collate([part[0], part[1], part[2]])
    assert torch.equal(batch["labels"] == -100, batch["attention_mask"] == 0)
    assert (batch["labels"] == -100).any()


@pytest.mark.parametrize(
    ("data", "model", "workers"),
    [("texts", "bert", 0), ("language", "gpt2", 0), ("texts", "lora", 2)],
)
def test_a_killed_run_ends_as_one_that_was_never_killed(
    folder, tmp_path, data, model, workers
) -> None:
    models = {"bert": CLASSIFIER, "gpt2": LANGUAGE_MODEL, "lora": with_adapter(folder)}
    section = texts(folder) if data == "texts" else language(folder)
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    config = small(
        section, models[model], **best, accumulate=2, ema_decay=0.9, max_epochs=1,
        **{"settings.workers": workers},
    )  # fmt: skip
    check_kill_anywhere(lambda: ludus.Trainer(config), tmp_path, max_kills=1 if workers else 2)


def test_an_adapter_is_saved_alone_and_put_on_its_base_again(folder, tmp_path) -> None:
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    config = small(texts(folder), with_adapter(folder), **best)
    trainer = ludus.Trainer(config)
    result = trainer.fit(root=tmp_path)
    best_model = Path(result.run_dir) / "models" / "best"
    weights, own = trainer.weights(), Model(with_adapter(folder), loss="from_model")
    assert is_adapter_alone(weights)
    assert sum(f.stat().st_size for f in best_model.rglob("*")) < 20_000
    checkpoints = [*(Path(result.run_dir) / "checkpoints").rglob("*.safetensors")]
    assert checkpoints
    from safetensors import safe_open

    for file in checkpoints:
        with safe_open(file, "pt") as held:
            names = list(held.keys())
            assert any("lora" in name for name in names)
            assert not any("base_layer" in name or "pooler" in name for name in names)
    own.load_model(best_model)
    batch = {"input_ids": torch.tensor([[2, 3, 4]]), "attention_mask": torch.ones(1, 3).long()}
    own.eval()
    trainer.model.load_model(best_model)
    trainer.model.eval()
    assert torch.equal(own(batch), trainer.model(batch))
    own.module.network.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    frozen = trainer.model.module.network.base_model.model.bert.pooler.dense.weight
    assert not frozen.requires_grad


def test_a_resume_on_another_base_is_refused(folder, tmp_path) -> None:
    from transformers import AutoModelForSequenceClassification

    base = tmp_path / "base"
    shutil.copytree(folder / "bert", base)
    model = {**with_adapter(folder), "path": str(base)}
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    config = small(texts(folder), model, max_epochs=1, **best)
    ludus.Trainer(config).fit(root=tmp_path, name="run")
    network = AutoModelForSequenceClassification.from_pretrained(base)
    with torch.no_grad():
        network.bert.pooler.dense.weight[0, 0] += 1
    network.save_pretrained(base)
    own = Model(model, loss="from_model")
    with pytest.raises(ludus.LudusError, match="the adapter was trained on another base"):
        own.load_model(tmp_path / "run" / "models" / "best")
    with pytest.raises(CheckpointError, match="the frozen base"):
        ludus.Trainer(config.replace(max_epochs=2)).fit(root=tmp_path, name="run", resume=True)


def test_a_script_trains_a_model_with_its_tokenizer_and_collator(folder, tmp_path) -> None:
    from datasets import load_from_disk
    from torch.utils.data import DataLoader
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
    )

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rows = load_from_disk(folder / "rows" / "train")
    rows = [{**tokenizer(row["text"]), "labels": row["label"]} for row in rows]
    loader = DataLoader(
        rows, batch_size=4, shuffle=True, collate_fn=DataCollatorWithPadding(tokenizer)
    )
    model = AutoModelForSequenceClassification.from_pretrained(folder / "bert")
    trainer = ludus.Trainer(small(None, None), train_loader=loader, val_loader=loader)
    trainer.set_model(model)
    result = trainer.fit(root=tmp_path)
    assert result.status == "finished"
    assert history(result.run_dir, "validation/epoch_accuracy")
    # What was trained can be saved as any model of transformers.
    model.save_pretrained(tmp_path / "trained")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "trained")
    assert torch.equal(again.classifier.weight, model.classifier.weight)


def test_a_script_with_a_peft_model_saves_the_adapter_alone(folder, tmp_path) -> None:
    import peft
    from torch.utils.data import DataLoader
    from transformers import AutoModelForSequenceClassification

    rows = [
        {"input_ids": torch.tensor([i % 12, 3]), "labels": torch.tensor(i % 2)} for i in range(8)
    ]
    base = AutoModelForSequenceClassification.from_pretrained(folder / "bert")
    lora = peft.LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS")
    model = peft.get_peft_model(base, lora)
    trainer = ludus.Trainer(
        small(None, None, evaluate_every_epochs=0), train_loader=DataLoader(rows, batch_size=4)
    )
    trainer.set_model(model)
    trainer.fit(root=tmp_path)
    assert is_adapter_alone(trainer.weights())
    model.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {},
        {"config": {**BERT, "vocab_size": 11}},
        "has 12 tokens, and the embedding of the model 11",
    ),
    (
        {},
        {"config": {**BERT, "pad_token_id": 3}},
        "pads with token 0, and the pad_token_id .* is 3",
    ),
    (
        {},
        {"config": {**GPT2, "num_labels": 2}},
        "pads with token 0, and the pad_token_id .* is null",
    ),
    ({}, {"config": {**BERT, "hidden_siz": 8}}, "'model.config.hidden_siz' is no value of a bert"),
    ({}, {"config": {"model_type": "brt"}}, "is brt, which transformers does not know"),
    ({}, {"config": {}}, "'path' is null, and 'config' names no model_type"),
    ({}, {"adapter": LORA}, "'adapter' is saved without its base"),
    ({}, {"path": "nowhere", "config": {}}, "is nowhere, which is no folder with a config.json"),
    ({}, {"path": "{}/bert"}, "names a model_type, which the folder"),
    (
        {},
        {"path": "{}/pickled", "config": {}},
        r"its weights pickled \(pytorch_model.bin\); ludus reads",
    ),
    ({}, {"path": "{}/bert", "config": {"num_labels": 3}}, "has classifier.bias as .2,., and"),
    ({"label": "other"}, {}, "the column other of labels holds string; number the classes"),
    ({"text": ["txt"]}, {}, "has no column txt. Did you mean 'text'?"),
    ({"path": "{}/rows"}, {}, "which holds test, train; name one of them"),
    ({"path": "{}/rows.txt"}, {}, "neither a folder that save_to_disk wrote nor a file"),
    ({}, {"path": "{}/cut", "config": {}}, "'model.path': Error while deserializing header"),
    ({"tokenizer": "{}/no_pad"}, {}, "has no pad token; set tokenizer.pad_token"),
    ({"tokenizer": "gpt2"}, {}, "is gpt2, which is no folder"),
    ({"label": None}, {}, "'task' is classification, and 'label' is null"),
    ({"task": "causal_lm"}, {}, "'task' is causal_lm, whose targets are the tokens"),
    ({"validation_path": "{}/rows/test"}, {}, "so 'validation_fraction' must be 0"),
]


@pytest.mark.parametrize(("data", "model", "told"), MISTAKES, ids=[m[2][:25] for m in MISTAKES])
def test_a_mistake_is_told_in_a_sentence_before_training(
    folder, tmp_path, data, model, told
) -> None:
    if not (folder / "no_pad").exists():
        write_tokenizer(folder / "no_pad", pad=None)
        shutil.copytree(folder / "bert", folder / "cut")
        whole = (folder / "cut" / "model.safetensors").read_bytes()
        (folder / "cut" / "model.safetensors").write_bytes(whole[:99])
        (folder / "pickled").mkdir()
        shutil.copy(folder / "bert" / "config.json", folder / "pickled")
        (folder / "pickled" / "pytorch_model.bin").write_bytes(b"")
    placed = [
        {k: v.replace("{}", str(folder)) if isinstance(v, str) else v for k, v in one.items()}
        for one in (data, model)
    ]
    with pytest.raises(ConfigError, match=told):
        ludus.Trainer(small(texts(folder, **placed[0]), {**CLASSIFIER, **placed[1]})).fit(
            root=tmp_path
        )


def test_a_layer_that_would_stay_random_under_an_adapter_is_refused(folder) -> None:
    other = {**with_adapter(folder, modules_to_save=[]), "auto_class": "AutoModelForMaskedLM"}
    with pytest.raises(
        ConfigError, match=r"no weights of cls.predictions.*modules_to_save.: \[cls\]"
    ):
        Model(other)
    with pytest.raises(ConfigError, match="has head, which is no layer of the model"):
        Model(with_adapter(folder, modules_to_save=["classifier", "head"]))


@pytest.mark.parametrize("library", ["transformers", "datasets"])
def test_a_missing_library_is_told_with_what_to_install(
    folder, tmp_path, monkeypatch, library
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, library, None)
    told = rf"kind huggingface needs {library}; install it with: pip install 'ludus\[huggingface\]'"
    with pytest.raises(ConfigError, match=told):
        ludus.Trainer(small(texts(folder), CLASSIFIER)).fit(root=tmp_path)


def test_the_engine_of_a_foreign_network_is_eager_and_said_so(folder, tmp_path) -> None:
    trainer = ludus.Trainer(small(texts(folder), CLASSIFIER, engine="auto", max_epochs=1))
    result = trainer.fit(root=tmp_path)
    assert trainer.config.engine == "eager"
    manifests = sorted(Path(result.run_dir).glob("checkpoints/*/manifest.json"))
    facts = json.loads(manifests[-1].read_text())["fingerprint"]
    assert {"transformers", "tokenizers", "datasets"} <= {*facts}


def test_an_active_learner_refuses_texts_and_losses_of_models(folder) -> None:
    for changed, told in (
        ({"data": texts(folder)}, "'data' is huggingface, whose examples are dicts"),
        ({"loss": "from_model", "strategy": {"kind": "uniform"}}, "'loss' is from_model"),
    ):
        with pytest.raises(ConfigError, match=told):
            ludus.example("active").replace(**changed)
