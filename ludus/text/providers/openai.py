"""OpenAI: its models are sampled; they are tuned as long as OpenAI takes jobs, which ends in January 2027."""

from __future__ import annotations

from typing import ClassVar

from ludus.config.registry import register
from ludus.text.client.secret import KeyConfig
from ludus.text.providers._openai_api import OpenaiApi, ServerConfig


class OpenaiConfig(ServerConfig):
    """OpenAI's own API, or one that is exactly like it."""

    key: KeyConfig
    """Where the API key is read."""


@register("provider", "openai")
class Openai(OpenaiApi):
    """The OpenAI API at its own address."""

    Config: ClassVar[type[OpenaiConfig]] = OpenaiConfig
    # Read in OpenAI's documentation.
    min_examples = 10
    completion_limit = "max_completion_tokens"
    label = "OpenAI"
