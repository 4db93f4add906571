"""TunedModel: a language model with the loss of a fine-tuning method.

Shapes: B examples, N sequences, T tokens, K learned tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ludus.core.errors import LudusError
from ludus.losses.language import dpo_loss, dpo_margins, sequence_log_probs, token_log_probs
from ludus.nn.model import FROM_MODEL, Model
from ludus.text.models.language_model import LanguageModel
from ludus.text.models.llama import Llama
from ludus.text.tuning.methods import DpoMethod, SupervisedMethod
from ludus.text.tuning.tokens import TokenBatch


class TunedModel(Model):
    """Computes the loss and the metrics of a batch of tokens; a reference is needed for DPO."""

    def __init__(self, language_model: LanguageModel, method: SupervisedMethod | DpoMethod) -> None:
        super().__init__(language_model.module, loss=FROM_MODEL)
        self.language_model, self.method = language_model, method
        self.reference_B2: Tensor | None = None
        """The log-probabilities of the two answers of each example under the reference model."""

    def training_step(self, batch: TokenBatch, batch_idx: int) -> dict[str, Tensor]:
        """Return the mean loss of a batch, and its metrics."""
        logits_KV = logits_at(self.module, batch.inputs, batch.places)
        log_probs_K = token_log_probs(logits_KV, batch.targets)
        if isinstance(self.method, SupervisedMethod):
            return {
                "loss": -log_probs_K.mean(),
                "token_accuracy": _accuracy(logits_KV, batch.targets),
            }
        chosen_B, rejected_B = _sums(batch, log_probs_K).chunk(2)
        reference_B2 = self._reference_of(batch)
        margins_B = dpo_margins(chosen_B, rejected_B, *reference_B2.unbind(1))
        is_chosen_K = batch.sequences < len(batch.rows)
        nll = -torch.where(is_chosen_K, log_probs_K, 0.0).sum() / is_chosen_K.sum()
        loss = dpo_loss(margins_B, beta=self.method.beta)
        if self.method.nll_coef:
            loss = loss + self.method.nll_coef * nll
        with torch.no_grad():
            is_right_K = logits_KV.argmax(-1) == batch.targets
            return {
                "loss": loss,
                "token_accuracy": (is_right_K & is_chosen_K).sum() / is_chosen_K.sum(),
                "preference_accuracy": (margins_B > 0).float().mean(),
                "margin": margins_B.mean(),
                "nll": nll,
            }

    def answer_log_probs(self, batch: TokenBatch) -> Tensor:
        """Return the log-probability of each sequence's learned tokens, as (B, sequences of an example)."""
        logits_KV = logits_at(self.module, batch.inputs, batch.places)
        sums_N = _sums(batch, token_log_probs(logits_KV, batch.targets))
        return sums_N.view(-1, len(batch.rows)).T

    def _reference_of(self, batch: TokenBatch) -> Tensor:
        if self.reference_B2 is None:
            raise LudusError(
                "the log-probabilities of the reference model are missing, which the first stage of a DPO run"
                " computes; start the run again"
            )
        return self.reference_B2.index_select(0, batch.rows)


def logits_at(module: nn.Module, inputs_NT: Tensor, places_K: Tensor) -> Tensor:
    """Return the logits of the tokens after these places of the flattened inputs."""
    if isinstance(module, Llama):
        # Of the other tokens, most of a prompt, no logits are needed.
        hidden_KW = module.model(inputs_NT).flatten(0, 1).index_select(0, places_K)
        return linear(hidden_KW, module.output_weight)
    logits_NTV: Tensor = module(inputs_NT, None)
    return logits_NTV.flatten(0, 1).index_select(0, places_K)


def _sums(batch: TokenBatch, log_probs_K: Tensor) -> Tensor:
    return sequence_log_probs(log_probs_K, batch.sequences, len(batch.inputs))


@torch.no_grad()
def _accuracy(logits_KV: Tensor, targets_K: Tensor) -> Tensor:
    return (logits_KV.argmax(-1) == targets_K).float().mean()
