"""Decode one prompt's samples by a model of transformers, with its own kind of cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ludus.text.sampling.decoder import Prompt, Rows


class HuggingFaceDecoder:
    """Rows that begin with the same prompt; it opens once."""

    def __init__(self, network: nn.Module) -> None:
        self._network: Any = network
        self._cache: Any = None
        self._num_rows = 0
        self._device = next(network.parameters()).device

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._num_rows

    def fresh(self) -> HuggingFaceDecoder:
        """Return a decoder of the same weights without rows."""
        return HuggingFaceDecoder(self._network)

    def fits(self, num_rows: int, length: int) -> bool:
        """Return True: the cache grows as transformers makes it."""
        return True

    @torch.inference_mode()
    def open(self, prompts: Sequence[Prompt], counts: Sequence[int]) -> Tensor:
        """Begin rows with a prompt; return their logits, one row each."""
        ((prompt,), (count,)) = (prompts, counts)
        tokens = torch.tensor([prompt], device=self._device)
        found = self._network(input_ids=tokens, use_cache=True, logits_to_keep=1)
        self._cache, self._num_rows = found.past_key_values, count
        self._cache.batch_repeat_interleave(count)
        logits: Tensor = found.logits[:, -1]
        return logits.repeat(count, 1)

    @torch.inference_mode()
    def advance(self, tokens: Rows) -> Tensor:
        """Append a token to each row, and return the logits of the next."""
        inputs = torch.as_tensor(tokens, device=self._device)[:, None]
        found = self._network(input_ids=inputs, past_key_values=self._cache, use_cache=True)
        logits: Tensor = found.logits[:, -1]
        return logits

    def move(self, sources: Rows, targets: Rows, num_rows: int) -> None:
        """Refuse: rows stay together until the last has ended."""
        raise NotImplementedError

    @torch.inference_mode()
    def logprobs(self, sequences: Sequence[tuple[Prompt, Prompt]]) -> list[list[float]]:
        """Return the log-probability of each token of continuations, given the prompts before them."""
        found = []
        for prompt, continuation in sequences:
            tokens = torch.tensor([(*prompt, *continuation)[:-1]], device=self._device)
            logits = self._network(input_ids=tokens, use_cache=False).logits[0, len(prompt) - 1 :]
            picked = torch.tensor(continuation, device=self._device)[:, None]
            found.append(logits.float().log_softmax(-1).gather(1, picked)[:, 0].tolist())
        return found
