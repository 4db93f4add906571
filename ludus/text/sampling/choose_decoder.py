"""Choose the decoder of a model: ludus's own for every plain Llama, transformers' caches for others."""

from __future__ import annotations

from typing import Any, Literal

from ludus.text.models.huggingface import HuggingFaceNetwork
from ludus.text.models.language_model import LanguageModel
from ludus.text.models.llama import Llama, LlamaShape
from ludus.text.sampling.decoder import Decoder
from ludus.text.sampling.grouped_decoder import GroupedDecoder
from ludus.text.sampling.huggingface_decoder import HuggingFaceDecoder
from ludus.text.sampling.llama_decoder import LlamaDecoder
from ludus.text.sampling.llama_weights import arranged

Batching = Literal["shared", "alone"]
"""`shared` computes the rows of all requests together, `alone` those of each request by themselves."""


def decoder_of(model: LanguageModel, *, batching: Batching, cache_bytes: int) -> Decoder:
    """Return a decoder on the model's weights; those of a Llama are copied, and so stay as they are."""
    network = _as_llama(model)
    if network is None:
        assert isinstance(model.module, HuggingFaceNetwork)
        inner = HuggingFaceDecoder(model.module.network)
        return GroupedDecoder(inner.fresh)
    shared = LlamaDecoder(arranged(network), cache_bytes=cache_bytes)
    return shared if batching == "shared" else GroupedDecoder(shared.fresh)


def _as_llama(model: LanguageModel) -> Llama | None:
    """Return the model's network as ludus's Llama; None if it is another architecture."""
    if isinstance(model.module, Llama):
        return model.module
    assert isinstance(model.module, HuggingFaceNetwork)
    network: Any = model.module.network
    shape = None
    if type(network).__name__ == "LlamaForCausalLM":
        shape = LlamaShape.from_json(network.config.to_dict())
    if shape is None:
        return None
    weights = network.state_dict()
    llama = Llama(shape).to(device=model.device, dtype=model.dtype)
    if shape.is_tied:
        weights.pop("lm_head.weight", None)
    llama.load_state_dict(weights)
    return llama
