"""New models: a small byte-level Llama with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import Positive, PositiveFloat, StrictConfig
from ludus.seeds import generator
from ludus.text.models.byte_tokenizer import ByteTokenizer
from ludus.text.models.language_model import LanguageModel, save_model
from ludus.text.models.llama import Llama, LlamaShape, initialise


class NewModelConfig(StrictConfig):
    """A new model."""

    kind: Literal["byte_llama"]
    """A Llama network whose tokens are the bytes of UTF-8."""
    width: Positive
    """The number of features of a hidden state."""
    num_layers: Positive
    """The number of layers."""
    num_heads: Positive
    """The number of attention heads; width is divided among them."""
    num_kv_heads: Positive
    """The number of heads of keys and values; as many as num_heads, or fewer that are shared."""
    mlp_width: Positive
    """The number of hidden features of each MLP."""
    context: Positive
    """The maximum number of tokens (bytes) of prompt and sample together."""
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    """Seed of the random weights."""
    embedding_std: PositiveFloat
    """The standard deviation of the embeddings; 0.02 learns, and 1 often does not."""

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        if self.width % (2 * self.num_heads):
            yield (
                f"'num_heads' is {self.num_heads}: each of the heads needs an even part of 'width'"
                f" ({self.width}); make width a multiple of {2 * self.num_heads}"
            )
        if self.num_heads % self.num_kv_heads:
            yield (
                f"'num_kv_heads' is {self.num_kv_heads}, which does not divide 'num_heads' ({self.num_heads})"
            )

    def shape(self) -> LlamaShape:
        """Return the architecture."""
        return LlamaShape(
            vocab_size=ByteTokenizer.vocab_size,
            width=self.width,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_width=self.width // self.num_heads,
            mlp_width=self.mlp_width,
            context=self.context,
        )


def make_model(
    config: NewModelConfig, directory: str | Path, *, name: str | None = None
) -> LanguageModel:
    """Create a model, save it in the directory, and return it; without a name it is called as that."""
    directory = Path(directory)
    network = Llama(config.shape())
    drawn = generator(config.seed, "new language model")
    initialise(network, drawn, embedding_std=config.embedding_std)
    model = LanguageModel(
        name or directory.name, directory, network.eval(), ByteTokenizer(), config.context
    )
    save_model(model, directory)
    return model
