"""TrainingClient: gradients and optimizer steps of a model behind an API; sampling from it is ordinary chat.

tokens = client.encode(messages)                              the prompt as the model reads it
datum = policy_gradient_datum(tokens, sampled, logprobs, advantage=0.5)
await client.forward_backward([datum], "importance_sampling")
await client.optim_step(AdamStep(learning_rate=1e-3))
model = await client.save_weights_for_sampler("step-1")       a name for ChatRequest.model
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ludus.core.errors import LudusError
from ludus.text.chat import ChatMessage

Loss = Literal["cross_entropy", "importance_sampling", "ppo"]
"""Each is a sum over tokens: of weight times negative log-probability, of -ratio times advantage, and the
latter with clipped ratios."""


@dataclass(frozen=True)
class TrainingDatum:
    """One sequence: position i of `tokens` predicts `targets[i]`; all inputs have one number for each."""

    tokens: tuple[int, ...]
    targets: tuple[int, ...]
    inputs: Mapping[str, tuple[float, ...]]
    """`weights` for cross_entropy; `logprobs` when sampled and `advantages` for the others."""

    def __post_init__(self) -> None:
        for name, values in {"target_tokens": self.targets, **self.inputs}.items():
            if len(values) != len(self.tokens):
                raise LudusError(
                    f"a datum has {len(self.tokens)} tokens and {len(values)} {name}; give one for each"
                )


@dataclass(frozen=True)
class AdamStep:
    """The numbers of one step of AdamW."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    max_grad_norm: float | None = None


@dataclass(frozen=True)
class BatchOutput:
    """What the model says of a batch."""

    loss: float
    """The sum over all tokens."""
    logprobs: tuple[tuple[float, ...], ...]
    """The log-probability of each target of each datum."""


class TrainingClient(ABC):
    """One model that is trained through an API. Requests are done in the order of the calls, each once.

    `state_dict` names the model and the number of the last request. A run that was killed and resumed loads
    it and sends again what it had sent after the checkpoint; the server answers as it did, and does nothing
    twice. Methods raise ProviderError, once sending again has not helped.
    """

    @abstractmethod
    def encode(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Return the tokens of a conversation, up to where the model's answer begins."""

    @abstractmethod
    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Return the tokens of an answer, with the one that ends it."""

    @abstractmethod
    async def forward_backward(
        self,
        datums: Sequence[TrainingDatum],
        loss: Loss,
        *,
        config: Mapping[str, float] | None = None,
    ) -> BatchOutput:
        """Add the gradient of a batch.

        For ppo, config may hold clip_low_threshold and clip_high_threshold.
        """

    @abstractmethod
    async def optim_step(self, step: AdamStep) -> Mapping[str, float]:
        """Take a step along the gradient since the last one, and return metrics such as grad_norm."""

    @abstractmethod
    async def save_weights_for_sampler(self, name: str) -> str:
        """Save the weights under a name, and return the name of a model to sample from."""

    @abstractmethod
    async def save_state(self, name: str) -> str:
        """Save weights and optimizer, and return the path to load them from."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return which model it is, and how many requests it was sent."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with that model after that many requests."""


def supervised_datum(
    prompt: Sequence[int], answer: Sequence[int], *, weight: float = 1.0
) -> TrainingDatum:
    """Return the datum that makes an answer to a prompt more likely, for cross_entropy."""
    tokens = (*prompt, *answer)
    weights = (0.0,) * (len(prompt) - 1) + (weight,) * len(answer)
    return TrainingDatum(tokens[:-1], tokens[1:], {"weights": weights})


def policy_gradient_datum(
    prompt: Sequence[int], sampled: Sequence[int], logprobs: Sequence[float], *, advantage: float
) -> TrainingDatum:
    """Return the datum of a sample, for importance_sampling and ppo; the prompt has advantage 0.

    `logprobs` are those of the sampled tokens when they were sampled.
    """
    tokens = (*prompt, *sampled)
    before = (0.0,) * (len(prompt) - 1)
    advantages = before + (advantage,) * len(sampled)
    return TrainingDatum(
        tokens[:-1], tokens[1:], {"logprobs": (*before, *logprobs), "advantages": advantages}
    )
