"""LanguageModel: a tokenizer and a network, and the directory they are saved in.

A directory holds config.json, model.safetensors and the tokenizer's files, as transformers reads them too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core.errors import ConfigError, LudusError
from ludus.store.files import sync_file, write_durably
from ludus.store.local import LocalStorage
from ludus.store.strict_json import dump_json, parse_json
from ludus.store.tensors import read_tensors, write_tensors
from ludus.text.models.byte_tokenizer import MARK, ByteTokenizer
from ludus.text.models.llama import Llama, LlamaShape
from ludus.text.models.tokenizer import ChatTokenizer

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer_config.json"
ADAPTER = "adapter_config.json"
_OWN_FILES = frozenset(
    {CONFIG, WEIGHTS, TOKENIZER, ADAPTER, "tokenizer.json", "adapter_model.safetensors"}
    | {"generation_config.json", "chat_template.jinja", "special_tokens_map.json", "README.md"}
    | {"merges.txt", "vocab.json", "tokenizer.model", "added_tokens.json", "ludus_model.json"}
    | {"model.safetensors.index.json"}
)


@dataclass
class LanguageModel:
    """A causal language model: `module(tokens_BT, lengths_B)` returns logits; padding is on the right."""

    name: str
    directory: Path
    """Where it was loaded from."""
    module: nn.Module
    tokenizer: ChatTokenizer
    context: int
    """The maximum number of tokens of prompt and sample together."""

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next(self.module.parameters()).dtype

    @property
    def num_logits(self) -> int:
        """The number of logits; some may stand for no token of the tokenizer."""
        if isinstance(self.module, Llama):
            return self.module.shape.vocab_size
        network: Any = self.module
        return int(network.network.config.vocab_size)

    @property
    def num_parameters(self) -> int:
        """The number of weights."""
        return sum(weight.numel() for weight in self.module.parameters())

    def logits(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Return the logits of the token after each."""
        found: Tensor = self.module(tokens_BT, lengths_B)
        return found


def load_model(
    directory: str | Path,
    *,
    name: str,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> LanguageModel:
    """Return the model of a local directory, in float32 unless a dtype is given; nothing is downloaded.

    ludus's own byte-level models need no other library; any other causal language model, or a LoRA adapter
    over one, is loaded through transformers.
    """
    directory = Path(directory)
    check_directory(directory)
    shape = _own_shape(directory)
    if shape is None:
        from ludus.text.models.huggingface import load_huggingface

        return load_huggingface(directory, name=name, device=device, dtype=dtype)
    network = Llama(shape)
    _load_weights(network, directory / WEIGHTS)
    network.to(device=device, dtype=dtype or torch.float32).eval()
    return LanguageModel(name, directory, network, ByteTokenizer(), shape.context)


def save_model(model: LanguageModel, directory: str | Path) -> None:
    """Save a model so that `load_model` and transformers read it; an earlier model there is replaced.

    The directory appears at once, complete and durable. One that holds anything but a model is refused.
    """
    write_directory(Path(directory), lambda folder: write_files(model, folder))


def write_files(model: LanguageModel, folder: Path) -> None:
    """Write a model's files into an empty directory, durably."""
    module = model.module
    if not isinstance(module, Llama):
        from ludus.text.models.huggingface import write_huggingface

        write_huggingface(model, folder)
        return
    values = {**module.shape.to_json(), **_token_ids(model.tokenizer)}
    write_durably(
        folder / CONFIG, [dump_json(values | {"dtype": str(model.dtype).removeprefix("torch.")})]
    )
    write_tensors(folder / WEIGHTS, {k: v.cpu() for k, v in module.state_dict().items()})
    sync_file(folder / WEIGHTS)
    model.tokenizer.save(folder)


def write_directory(directory: Path, fill: Callable[[Path], None]) -> None:
    """Create a model's directory atomically; an earlier model there is replaced, anything else refused."""
    check_replaceable(directory)
    directory = directory.absolute()
    storage = LocalStorage(directory.parent)
    storage.make_root()
    if storage.exists(directory.name):
        storage.remove(directory.name)
    storage.commit(directory.name, fill, step=lambda point: None)


def check_replaceable(directory: Path) -> None:
    """Raise ConfigError unless a model may be written there: nothing, an empty directory, or a model."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise ConfigError(f"{directory} is no directory; choose another for the model")
    found = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    others = sorted(
        one for one in found if one not in _OWN_FILES and not one.endswith(".safetensors")
    )
    if others or (found and not found & {CONFIG, ADAPTER}):
        raise ConfigError(
            f"{directory} holds {(others or sorted(found))[0]}, which is no part of a model; choose another"
            " directory, for all of it would be replaced"
        )


def check_directory(directory: Path) -> None:
    """Raise ConfigError, with the remedy, unless this is a directory with a model's config and weights."""
    if directory.suffix == ".gguf" or any(directory.glob("*.gguf")):
        raise ConfigError(
            f"{directory} is a GGUF file or holds one, which is not read; load it once with transformers"
            " (gguf_file=...) and save_pretrained it as safetensors"
        )
    if not directory.is_dir():
        raise ConfigError(
            f"{directory} is not a directory here; a model is loaded from a local directory that"
            " save_pretrained or ludus wrote, and nothing is downloaded"
        )
    if not (directory / CONFIG).is_file() and not (directory / ADAPTER).is_file():
        raise ConfigError(f"{directory} has no {CONFIG}, so it is not the directory of a model")
    if not any(directory.glob("*.safetensors")):
        pickled = sorted(path.name for path in directory.glob("*.bin"))
        what = f"its weights pickled ({pickled[0]})" if pickled else "no weights"
        raise ConfigError(
            f"{directory} has {what}; only safetensors are read: save the model again with save_pretrained"
        )


def read_json(path: Path) -> dict[str, Any]:
    """Return the values of a JSON file of a model's directory."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    found = parse_json(data, source=str(path))
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no keys and values")
    return found


def _own_shape(directory: Path) -> LlamaShape | None:
    """Return the shape of a model of ludus; None if the directory needs transformers."""
    if not all((directory / name).is_file() for name in (CONFIG, TOKENIZER, WEIGHTS)):
        return None
    if read_json(directory / TOKENIZER).get("ludus_tokenizer") != MARK:
        return None
    path = directory / CONFIG
    try:
        return LlamaShape.from_json(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is not the config of a Llama model: {error!r}") from None


def _load_weights(network: Llama, path: Path) -> None:
    saved = read_tensors(path)
    if network.shape.is_tied:
        saved.pop("lm_head.weight", None)
    own = network.state_dict()
    missing, unknown = sorted(own.keys() - saved.keys()), sorted(saved.keys() - own.keys())
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}, which the model has not"
        raise LudusError(f"{path} does not fit {CONFIG}: it {what}")
    for key, tensor in own.items():
        if tensor.shape != saved[key].shape:
            raise LudusError(
                f"{path} does not fit {CONFIG}: {key} is {tuple(saved[key].shape)}, not {tuple(tensor.shape)}"
            )
    network.load_state_dict(saved)


def _token_ids(tokenizer: ChatTokenizer) -> dict[str, int]:
    ids = {"eos_token_id": tokenizer.end_of_message, "pad_token_id": tokenizer.pad}
    if isinstance(tokenizer, ByteTokenizer):
        ids["bos_token_id"] = tokenizer.bos
    return ids
