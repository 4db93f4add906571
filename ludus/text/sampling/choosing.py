"""Choose the next token of each row from its logits, by the inverse of the cumulative distribution."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.core.errors import LudusError
from ludus.text.sampling.decoder import Rows
from ludus.text.sampling.request import SampleRequest


class Temper(NamedTuple):
    """How each row is sampled."""

    inverse_temperatures: NDArray[np.float32]
    """1 for a row that is greedy."""
    is_greedy: NDArray[np.bool_]
    top_p: NDArray[np.float32]
    uniforms: NDArray[np.float32]
    """A number in [0, 1) for each row."""


def choose(logits_RV: Tensor, temper: Temper) -> Rows:
    """Return the token of each row; it follows from the row's own logits and numbers alone."""
    if temper.is_greedy.all():
        check_finite(logits_RV.amax(-1).cpu().numpy())
        greedy: Rows = logits_RV.argmax(-1).cpu().numpy()
        return greedy
    if (temper.inverse_temperatures != 1).any():
        scales = torch.as_tensor(temper.inverse_temperatures, device=logits_RV.device)
        tempered_RV = logits_RV.float() * scales[:, None]
    else:
        tempered_RV = logits_RV.float()
    probabilities_RV = tempered_RV.softmax(-1)
    (cut,) = np.nonzero((temper.top_p < 1) & ~temper.is_greedy)
    if len(cut):
        rows = torch.as_tensor(cut, device=logits_RV.device)
        kept = torch.as_tensor(temper.top_p[cut], device=logits_RV.device)
        probabilities_RV[rows] = nucleus(probabilities_RV[rows], kept)
    sums_RV = probabilities_RV.cumsum(-1)
    totals_R = sums_RV[:, -1]
    check_finite(totals_R.cpu().numpy())
    # A uniform is at most 1 - 2**-24, so its product with the total is below the total even when rounded:
    # a token of probability 0 is never taken.
    below = torch.as_tensor(temper.uniforms, device=logits_RV.device) * totals_R
    tokens: Rows = torch.searchsorted(sums_RV, below[:, None], right=True)[:, 0].cpu().numpy()
    (greedy_rows,) = np.nonzero(temper.is_greedy)
    if len(greedy_rows):
        picked = torch.as_tensor(greedy_rows, device=logits_RV.device)
        tokens[greedy_rows] = logits_RV[picked].argmax(-1).cpu().numpy()
    return tokens


def nucleus(probabilities_RV: Tensor, top_p_R: Tensor) -> Tensor:
    """Return the probabilities with all set to 0 but the largest, which together reach top_p."""
    sorted_RV = probabilities_RV.sort(-1, descending=True).values
    before_RV = sorted_RV.cumsum(-1) - sorted_RV
    last_R = (before_RV < top_p_R[:, None]).sum(-1) - 1
    least = sorted_RV.gather(1, last_R.clamp(min=0)[:, None])
    return torch.where(probabilities_RV >= least, probabilities_RV, 0.0)


def check_finite(values: NDArray[np.float32]) -> None:
    """Raise LudusError if a model's logits are not numbers."""
    if not np.isfinite(values).all():
        raise LudusError(
            "the model's logits are not finite numbers: its weights are damaged, or its training diverged;"
            " sample from an earlier model"
        )


def token_logprobs(logits_RV: Tensor, tokens_R: Rows) -> tuple[Tensor, NDArray[np.float32]]:
    """Return the log-probabilities of all tokens, and those of the given ones."""
    logprobs_RV = logits_RV.float().log_softmax(-1)
    picked = torch.as_tensor(tokens_R, device=logits_RV.device)[:, None]
    return logprobs_RV, logprobs_RV.gather(1, picked)[:, 0].cpu().numpy()


class Penalties:
    """What is added to the logits of rows with a bias or a penalty: one dense vector for each of them."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._biases: dict[int, NDArray[np.float32]] = {}
        self._seen: dict[int, set[int]] = {}

    def begin(self, rows: range, request: SampleRequest) -> None:
        """Begin rows with the bias of their request."""
        for row in rows:
            bias = self._biases[row] = np.zeros(self._vocab_size, dtype=np.float32)
            self._seen[row] = set()
            for token, value in request.logit_bias.items():
                bias[token] = value

    def note(self, row: int, token: int, request: SampleRequest) -> None:
        """Count a sampled token of a row."""
        penalty = request.frequency_penalty
        if token not in self._seen[row]:
            self._seen[row].add(token)
            penalty += request.presence_penalty
        self._biases[row][token] -= np.float32(penalty)

    def move(self, sources: Rows, targets: Rows) -> None:
        """Overwrite the biases of rows by those of others."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            if source in self._biases:
                self._biases[target] = self._biases.pop(source)
                self._seen[target] = self._seen.pop(source)

    def applied(self, logits_RV: Tensor, rows: Rows) -> Tensor:
        """Return the logits with the biases of these rows added."""
        changed = logits_RV.float().clone()
        biases = torch.as_tensor(np.stack([self._biases[row] for row in rows.tolist()]))
        changed[torch.as_tensor(rows)] += biases.to(changed.device)
        return changed
