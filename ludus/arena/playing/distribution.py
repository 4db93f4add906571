"""TurnDistribution: a decision, and a symbol for each channel, of every agent at once.

Actions of an agent without a turn are drawn too but have no effect: the masks remove them from the
log-probability and the entropy.

Shapes: A agents, C channels, V symbols; `...` is any batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl


class TurnDistribution(Distribution):
    """Independent categorical distributions of the decision and of the symbols.

    An action is (..., A, 1 + C) integers: the decision first, then the symbol of each channel.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.nonnegative_integer
    has_rsample = False

    def __init__(
        self,
        decision_logits: Tensor,
        message_logits: Tensor,
        decision_mask: Tensor,
        message_mask: Tensor,
    ) -> None:
        """Take logits (..., A, 3) and (..., A, C, V), and their masks: (..., A) and (..., A, C)."""
        self.decisions = torch.log_softmax(decision_logits, -1)
        self.messages = torch.log_softmax(message_logits, -1)
        self.decision_mask, self.message_mask = decision_mask, message_mask
        shape = decision_logits.shape[:-1]
        event = torch.Size((1 + message_logits.shape[-2],))
        super().__init__(shape, event, validate_args=False)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return (..., A) the log-probability of the unmasked parts of each agent's action."""
        decided = self.decisions.gather(-1, action[..., :1])[..., 0]
        said = self.messages.gather(-1, action[..., 1:, None])[..., 0]
        zero = decided.new_zeros(())
        decided = torch.where(self.decision_mask, decided, zero)
        return decided + torch.where(self.message_mask, said, zero).sum(-1)

    def entropy(self) -> Tensor:
        """Return (..., A) the entropy of the unmasked parts of each agent's action."""
        decided = -(self.decisions.exp() * self.decisions).sum(-1)
        said = -(self.messages.exp() * self.messages).sum(-1)
        return decided * self.decision_mask + (said * self.message_mask).sum(-1)

    def drawn(self, generator: torch.Generator) -> Tensor:
        """Return an action, sampled without a host sync."""
        decided = _draw(self.decisions, generator)[..., None]
        return torch.cat([decided, _draw(self.messages, generator)], -1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return an action, sampled from torch's global generator."""
        shape = torch.Size(sample_shape)
        decided = _draw(self.decisions.expand(shape + self.decisions.shape), None)[..., None]
        said = _draw(self.messages.expand(shape + self.messages.shape), None)
        return torch.cat([decided, said], -1)

    @property
    def mode(self) -> Tensor:
        """The most likely action."""
        return torch.cat([self.decisions.argmax(-1)[..., None], self.messages.argmax(-1)], -1)

    @property
    def deterministic_sample(self) -> Tensor:
        """The most likely action, under the name that TorchRL uses."""
        return self.mode


def _draw(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return samples of categorical distributions, by the exponential race (Gumbel-max)."""
    waits = torch.empty_like(logits).exponential_(generator=generator)
    waits = waits.clamp_min(torch.finfo(waits.dtype).tiny)  # 0 would let a masked symbol win
    return (logits - waits.log()).argmax(-1)


@register_kl(TurnDistribution, TurnDistribution)  # type: ignore[untyped-decorator]
def turn_kl(one: TurnDistribution, other: TurnDistribution) -> Tensor:
    """Return (..., A) the KL divergence of the unmasked parts."""
    decided = (one.decisions.exp() * (one.decisions - other.decisions)).sum(-1)
    said = (one.messages.exp() * (one.messages - other.messages)).sum(-1)
    return decided * one.decision_mask + (said * one.message_mask).sum(-1)
