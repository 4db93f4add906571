"""Transformers reads the models of ludus, and ludus those of transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.core.errors import ConfigError, LudusError
from ludus.text.chat import ChatMessage
from ludus.text.models.byte_tokenizer import ByteTokenizer
from ludus.text.models.language_model import LanguageModel, load_model, save_model

transformers = pytest.importorskip("transformers")
MESSAGES = [
    ChatMessage("system", "Sei brav, ü€😀\x00"),
    ChatMessage("user", "hi  \n there "),
    ChatMessage("assistant", "ok"),
    ChatMessage("user", "again"),
    ChatMessage("assistant", "fine"),
]


def unmarked(directory: Path) -> None:
    """Make the tokenizer of a directory one that ludus does not know as its own."""
    path = directory / "tokenizer_config.json"
    values = json.loads(path.read_text())
    del values["ludus_tokenizer"]
    path.write_text(json.dumps(values))


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a model of another architecture."""
    path = tmp_path_factory.mktemp("huggingface") / "gpt"
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=264, n_positions=64, n_embd=16, n_layer=2, n_head=2, eos_token_id=260,
        bos_token_id=256, initializer_range=0.5,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(path)
    ByteTokenizer().save(path)
    unmarked(path)
    return path


@pytest.fixture(scope="module")
def model(gpt: Path) -> LanguageModel:
    return load_model(gpt, name="gpt")


def test_transformers_makes_the_same_tokens_and_bit_for_bit_the_same_logits(tiny: Path) -> None:
    ours = load_model(tiny, name="tiny")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    given: list[dict[str, str]] = [one._asdict() for one in MESSAGES]  # type: ignore[misc]
    for add in (False, True):
        found = tokenizer.apply_chat_template(given, add_generation_prompt=add, return_dict=False)
        assert found == ours.tokenizer.encode_chat(MESSAGES, add_generation_prompt=add)
    tokens = torch.tensor([found, found[::-1]])
    with torch.no_grad():
        assert torch.equal(theirs(tokens).logits, ours.logits(tokens))
    assert tokenizer.decode(found, skip_special_tokens=True) == ours.tokenizer.decode(found)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (260, 261)


def test_the_generic_tokenizer_agrees_with_the_byte_tokenizer(model: LanguageModel) -> None:
    ours, generic = ByteTokenizer(), model.tokenizer
    assert generic.encode_with_mask(MESSAGES) == ours.encode_with_mask(MESSAGES)
    text = "Grüße 😀 <|user|>"
    assert generic.encode(text) == ours.encode(text)
    assert generic.decode([256, *ours.encode(text), 260]) == text
    assert [generic.token_bytes(token) for token in range(264)] == [
        ours.token_bytes(token) for token in range(264)
    ]
    assert (generic.ends, generic.pad, generic.vocab_size) == ((260,), 261, 264)
    assert (generic.token_text(260), generic.token_text(97)) == ("<|end_of_message|>", "a")


def test_the_name_of_a_special_token_in_a_message_is_text_there_too(model: LanguageModel) -> None:
    messages = [ChatMessage("user", "<|end_of_message|><|system|>"), ChatMessage("assistant", "no")]
    expected = ByteTokenizer().encode_with_mask(messages)
    assert model.tokenizer.encode_with_mask(messages) == expected


def test_a_model_of_another_architecture_loads_and_is_saved_again(
    model: LanguageModel, tmp_path: Path
) -> None:
    save_model(model, tmp_path / "copy")
    again = load_model(tmp_path / "copy", name="copy")
    tokens = torch.arange(40).view(2, 20)
    with torch.no_grad():
        assert torch.equal(again.logits(tokens), model.logits(tokens))
        short = model.logits(tokens[:1, :9])
        padded = model.logits(tokens, torch.tensor([9, 20]))
    torch.testing.assert_close(padded[:1, :9], short)
    assert (again.context, again.num_logits) == (64, 264)


def test_what_a_template_writes_after_a_message_is_not_learned(gpt: Path, tmp_path: Path) -> None:
    shutil.copytree(gpt, tmp_path / "lines")
    path = tmp_path / "lines" / "tokenizer_config.json"
    values: dict[str, Any] = json.loads(path.read_text())
    values["chat_template"] = values["chat_template"].replace("message|>'", "message|>\n'")
    path.write_text(json.dumps(values))
    tokens, mask = load_model(tmp_path / "lines", name="lines").tokenizer.encode_with_mask(MESSAGES)
    learned = [token for token, is_learned in zip(tokens, mask, strict=True) if is_learned]
    assert learned == [*b"ok", 260, *b"fine", 260]
    assert tokens[-2:] == [260, 10]


def test_a_template_that_refuses_or_is_missing_is_reported(gpt: Path, tmp_path: Path) -> None:
    for template, sentence in (
        (None, "has no chat template"),
        ("{{ raise_exception('no system') }}", "chat template refuses the messages: no system"),
        ("{% if messages|length > 2 %}!{% endif %}x", "writes a message differently once others"),
    ):
        path = tmp_path / "spoilt"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(gpt, path)
        values: dict[str, Any] = json.loads((path / "tokenizer_config.json").read_text())
        values["chat_template"] = template
        (path / "tokenizer_config.json").write_text(json.dumps(values))
        with pytest.raises(LudusError, match=sentence):
            load_model(path, name="spoilt").tokenizer.encode_with_mask(MESSAGES)


def test_an_adapter_is_loaded_over_its_base_and_saved_alone(gpt: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = load_model(gpt, name="base")
    config = peft.LoraConfig(
        r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True
    )
    network: Any = base.module
    network.network = peft.get_peft_model(network.network, config)
    network.network.peft_config["default"].base_model_name_or_path = str(gpt)
    save_model(base, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "config.json").exists()
    loaded = load_model(tmp_path / "adapter", name="adapter")
    tokens, plain = torch.arange(20)[None], load_model(gpt, name="gpt")
    with torch.no_grad():
        assert torch.equal(loaded.logits(tokens), base.logits(tokens))
        assert not torch.allclose(loaded.logits(tokens), plain.logits(tokens))
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(path.read_text().replace(str(gpt), "org/base"))
    with pytest.raises(
        ConfigError, match="is an adapter over 'org/base', which is not a directory"
    ):
        load_model(tmp_path / "adapter", name="adapter")


def test_a_model_type_that_transformers_does_not_know_is_reported(
    gpt: Path, tmp_path: Path
) -> None:
    shutil.copytree(gpt, tmp_path / "odd")
    values = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps(values | {"model_type": "odd"}))
    with pytest.raises(ConfigError, match=r"cannot be loaded as a language model: .*odd"):
        load_model(tmp_path / "odd", name="odd")


def test_without_transformers_the_extra_is_named(
    gpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"needs transformers; install it with: .*huggingface"):
        load_model(gpt, name="gpt")
