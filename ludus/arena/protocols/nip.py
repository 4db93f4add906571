"""The protocol `nip`: a verifier and one prover speak in turn, until the verifier decides."""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.arena.protocol import ACCEPT, ProtocolHandler, ProtocolParameters
from ludus.config.registry import register


class NipParameters(ProtocolParameters):
    """A verifier and a prover, in turn."""

    verifier_first: bool
    """The verifier speaks first; false lets the prover begin."""


@register("protocol", "nip")
class Nip(ProtocolHandler):
    """The prover argues that the label is 1, whatever it is; the verifier asks, and decides."""

    Config = NipParameters
    params: NipParameters

    @property
    def agent_names(self) -> tuple[str, ...]:
        """One verifier, one prover."""
        return "verifier", "prover"

    def speakers(self, round_index: int, seed_B: Tensor) -> Tensor:
        """Return (B, A, C): the verifier in even rounds if it is first, else in odd ones."""
        is_verifiers = (round_index % 2 == 0) == self.params.verifier_first
        turn = torch.tensor([[is_verifiers], [not is_verifiers]], device=seed_B.device)
        return turn.expand(len(seed_B), 2, 1)

    def prover_rewards(self, decision_B: Tensor, y_B: Tensor) -> Tensor:
        """Return (B, 1): the prover gains by being believed."""
        return (decision_B == ACCEPT)[:, None]
