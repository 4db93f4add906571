"""Decode Llama models for many rows at once, so that no bit of a row depends on the other rows.

Rows lie at the start of the cache, each at its own length; what lies after it is masked. Kernels add up in
another order for very small shapes, so shapes are padded: rows and lengths to multiples of ROUND. A prompt is
computed with prompts of the same padded length alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, pad, rms_norm, silu

from ludus.text.sampling.decoder import Prompt, Rows
from ludus.text.sampling.llama_cache import ROUND, LlamaCache, rounded
from ludus.text.sampling.llama_weights import LayerWeights, LlamaWeights

_Caches = list[tuple[Tensor, Tensor]]
_MAX_SCORES = 1 << 24
"""The maximum number of attention scores, or of logits, that are computed at once."""
_MAX_TOKENS = 1 << 12
"""The number of tokens of prompts that are computed at once, so that they stay in the processor's cache."""
_ROUND_PROMPT = 8
"""Prompts are padded to a multiple of this."""
_MIN_PRODUCT = 400
"""Below this size torch multiplies small matrices by another kernel than above."""


class LlamaDecoder:
    """Rows of a Llama network, on a copy of its weights."""

    def __init__(self, weights: LlamaWeights, *, cache_bytes: int) -> None:
        """`cache_bytes` bounds the cache of keys and values."""
        self.weights, self._cache_bytes = weights, cache_bytes
        shape = self.shape = self.weights.shape
        # Each thread must be given several rows, or its kernel is that of a single row.
        self._round = rounded(max(ROUND, 4 * torch.get_num_threads()))
        self._num_shared = shape.num_heads // shape.num_kv_heads
        self._min_length = rounded(math.ceil(_MIN_PRODUCT / shape.head_width))
        self._cache = LlamaCache(shape, self.weights.embedding, cache_bytes)
        self._lengths = np.zeros(0, dtype=np.int64)

    def fresh(self) -> LlamaDecoder:
        """Return a decoder of the same weights without rows."""
        return LlamaDecoder(self.weights, cache_bytes=self._cache_bytes)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self._lengths)

    def fits(self, num_rows: int, length: int) -> bool:
        """Return whether there is memory for this many rows up to this length."""
        return self._cache.fits(rounded(num_rows, self._round), rounded(length))

    @torch.inference_mode()
    def open(self, prompts: Sequence[Prompt], counts: Sequence[int]) -> Tensor:
        """Append `counts[i]` rows that begin with prompt i; return their logits, one row each."""
        start, lengths = self.num_rows, _lengths(prompts)
        self._lengths = np.concatenate((self._lengths, np.repeat(lengths, counts)))
        self._cache.reserve(rounded(self.num_rows, self._round), rounded(int(lengths.max()) + 1))
        distinct = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        rows: list[list[int]] = [[] for _ in distinct]
        for prompt, end, count in zip(prompts, np.cumsum(counts).tolist(), counts, strict=True):
            rows[distinct[prompt]] += range(start + end - count, start + end)
        hidden_PW = self._prefill(list(distinct), rows)
        which = np.repeat([distinct[prompt] for prompt in prompts], counts)
        picked = torch.as_tensor(which, device=self.weights.device)
        return self._logits(hidden_PW).index_select(0, picked)

    def _prefill(self, prompts: Sequence[Prompt], rows: Sequence[Sequence[int]]) -> Tensor:
        """Compute prompts, and copy their keys and values into rows; return their last hidden states."""
        lengths, like = _lengths(prompts), self.weights.embedding
        hidden_PW = like.new_empty((len(prompts), self.shape.width))
        for group in self._groups(lengths):
            last_B = torch.as_tensor(lengths[group] - 1, device=like.device)
            tokens_BT = self._padded([prompts[index] for index in group])
            found, caches = self._forward(tokens_BT, last_B)
            hidden_PW[torch.as_tensor(group, device=like.device)] = found
            numbers = np.repeat(np.arange(len(group)), [len(rows[index]) for index in group])
            self._cache.fill([row for index in group for row in rows[index]], caches, numbers)
        return hidden_PW

    @torch.inference_mode()
    def advance(self, tokens: Rows) -> Tensor:
        """Append a token to each row, and return the logits of the next."""
        num_rows, longest = self.num_rows, int(self._lengths.max()) + 1
        padded = rounded(num_rows, self._round)
        inputs = np.zeros((2, padded), dtype=np.int64)
        inputs[0, :num_rows], inputs[1, :num_rows] = tokens, self._lengths
        tokens_R, positions_R = torch.as_tensor(inputs, device=self.weights.device)
        extent = max(self._min_length, rounded(longest))
        self._cache.reserve(padded, extent)
        hidden_RW = self._step(tokens_R, positions_R, extent)
        self._lengths += 1
        return (self._normalised(hidden_RW) @ self.weights.output)[:num_rows]

    @torch.inference_mode()
    def move(self, sources: Rows, targets: Rows, num_rows: int) -> None:
        """Overwrite the rows `targets` by `sources`, and keep the first `num_rows` only."""
        if len(sources):
            self._lengths[targets] = self._lengths[sources]
            self._cache.move(sources, targets, rounded(int(self._lengths.max())))
        self._lengths = self._lengths[:num_rows].copy()

    @torch.inference_mode()
    def logprobs(self, sequences: Sequence[tuple[Prompt, Prompt]]) -> list[list[float]]:
        """Return the log-probability of each token of continuations, given the prompts before them."""
        whole = [(*prompt, *continuation)[:-1] for prompt, continuation in sequences]
        found: list[list[float]] = [[] for _ in sequences]
        for group in self._groups(_lengths(whole), self.shape.vocab_size):
            hidden, _ = self._forward(self._padded([whole[index] for index in group]), None)
            logits_BTV = self._logits(hidden).unflatten(0, (len(group), -1))
            for number, index in enumerate(group):
                prompt, continuation = sequences[index]
                logits = logits_BTV[number, len(prompt) - 1 : len(whole[index])]
                picked = torch.tensor(continuation, device=logits.device)[:, None]
                found[index] = logits.log_softmax(-1).gather(1, picked)[:, 0].tolist()
        return found

    def _groups(self, lengths: Rows, width: int = 0) -> Iterator[list[int]]:
        """Yield indices of sequences of the same padded length, as many as are computed at once."""
        padded = [rounded(int(length), _ROUND_PROMPT) for length in lengths]
        for length in sorted(set(padded)):
            same = [index for index, own in enumerate(padded) if own == length]
            scores = length * max(self.shape.num_heads * length, width)
            size = max(1, min(_MAX_SCORES // scores, _MAX_TOKENS // length))
            for first in range(0, len(same), size):
                yield same[first : first + size]

    def _padded(self, sequences: Sequence[Prompt]) -> Tensor:
        length = rounded(max(map(len, sequences)), _ROUND_PROMPT)
        rows = np.zeros((len(sequences), length), dtype=np.int64)
        for row, tokens in zip(rows, sequences, strict=True):
            row[: len(tokens)] = tokens
        return torch.as_tensor(rows, device=self.weights.device)

    def _logits(self, hidden_PW: Tensor) -> Tensor:
        """Return the logits of final hidden states, as `advance` computes them."""
        num_rows = len(hidden_PW)
        missing = rounded(num_rows, self._round) - num_rows
        padded = torch.cat((hidden_PW, hidden_PW.new_zeros((missing, hidden_PW.shape[1]))))
        return (self._normalised(padded) @ self.weights.output)[:num_rows]

    def _normalised(self, hidden: Tensor) -> Tensor:
        return rms_norm(hidden, (self.shape.width,), None, self.shape.norm_epsilon)

    def _step(self, tokens_R: Tensor, positions_R: Tensor, extent: int) -> Tensor:
        """Return the hidden states of one more token of each row, whose keys and values are added."""
        num_rows, turns = len(tokens_R), self._turns(positions_R)
        mask = self._mask(positions_R, extent)
        places = self._cache.places(positions_R)
        hidden_RW = embedding(tokens_R, self.weights.embedding)
        for number, layer in enumerate(self.weights.layers):
            queries_RHD, keys, values = self._turned(layer, hidden_RW, turns)
            self._cache.write(number, places, keys, values)
            keys, values = self._cache.read(number, num_rows, extent)
            found = self._attended(queries_RHD[:, :, None], keys, values, mask)
            hidden_RW = self._finished(layer, hidden_RW, found)
        return hidden_RW

    def _forward(self, tokens_BT: Tensor, last_B: Tensor | None) -> tuple[Tensor, _Caches]:
        """Return the hidden states of whole sequences, and the keys and values of each layer.

        With `last_B` the hidden states are those of one position of each sequence.
        """
        num_rows, length = tokens_BT.shape
        size = num_rows * length
        padded = rounded(size, self._round)
        positions = torch.arange(padded, device=tokens_BT.device).remainder_(length)
        turns = self._turns(positions)
        hidden = embedding(pad(tokens_BT.flatten(), (0, padded - size)), self.weights.embedding)
        caches: _Caches = []
        for layer in self.weights.layers:
            queries, keys, values = (
                one[:size].unflatten(0, (num_rows, length)).transpose(1, 2)
                for one in self._turned(layer, hidden, turns)
            )
            caches.append((keys, values))
            keys, values = keys.flatten(0, 1), values.flatten(0, 1)
            if last_B is not None and layer is self.weights.layers[-1]:
                rows = torch.arange(num_rows, device=last_B.device)
                queries, mask = queries[rows, :, last_B][:, :, None], self._mask(last_B, length)
                found = self._attended(queries, keys, values, mask)
                hidden = hidden[:size].view(num_rows, length, -1)[rows, last_B]
                padded = rounded(num_rows, self._round)
                hidden = pad(hidden, (0, 0, 0, padded - num_rows))
            else:
                found = self._attended_causally(queries, keys, values)
            missing = padded - len(found)
            hidden = self._finished(layer, hidden, pad(found, (0, 0, 0, missing)))
        return hidden[: size if last_B is None else num_rows], caches

    def _attended_causally(self, queries_BHTD: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return what each position finds at those up to it; long sequences in parts."""
        num_rows, num_heads, length, _ = queries_BHTD.shape
        part = max(ROUND, _MAX_SCORES // (num_heads * length) // ROUND * ROUND)
        found = []
        for first in range(0, length, part):
            queries = queries_BHTD[:, :, first : first + part]
            future = torch.full((queries.shape[2], length), -math.inf, device=queries.device)
            mask = future.triu_(1 + first).repeat(self._num_shared, 1)
            given = self._attended(queries, keys, values, mask.expand(len(keys), -1, -1))
            found.append(given.view(num_rows, queries.shape[2], -1))
        return torch.cat(found, 1).flatten(0, 1)

    def _attended(self, queries_BHQD: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Return what queries find, one row each; keys and values are matrices of each row and head."""
        num_rows, num_heads, num_queries, width = queries_BHQD.shape
        queries = queries_BHQD.reshape(len(keys), self._num_shared * num_queries, width)
        weights = torch.baddbmm(mask, queries, keys.transpose(1, 2)).softmax(-1)
        found = torch.bmm(weights, values).view(num_rows, num_heads, num_queries, width)
        return found.transpose(1, 2).reshape(num_rows * num_queries, -1)

    def _mask(self, positions_R: Tensor, extent: int) -> Tensor:
        """Return what is added to the scores of one query a row, which sees what is up to its position."""
        is_future = torch.arange(extent, device=positions_R.device) > positions_R[:, None]
        mask_RT = torch.zeros(is_future.shape, device=positions_R.device)
        mask_RT.masked_fill_(is_future, -math.inf)
        whole = mask_RT[:, None, None].expand(-1, self.shape.num_kv_heads, self._num_shared, -1)
        return whole.flatten(0, 1)

    def _turns(self, positions: Tensor) -> Tensor:
        """Return the rotation of each head of queries and keys at each position."""
        turns = self.weights.rotations.index_select(0, positions)[:, None]
        num_turned = self.shape.num_heads + self.shape.num_kv_heads
        return turns.expand(-1, num_turned, -1).contiguous()

    def _turned(
        self, layer: LayerWeights, hidden: Tensor, turns: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values of tokens, by head; the first two turned by their positions."""
        shape = self.shape
        qkv = (self._normalised(hidden) @ layer.qkv).unflatten(1, (-1, shape.head_width))
        num_turned = shape.num_heads + shape.num_kv_heads
        pairs = torch.view_as_complex(qkv[:, :num_turned].unflatten(2, (-1, 2)))
        turned = torch.view_as_real(pairs * turns).flatten(2)
        return turned[:, : shape.num_heads], turned[:, shape.num_heads :], qkv[:, num_turned:]

    def _finished(self, layer: LayerWeights, hidden: Tensor, found: Tensor) -> Tensor:
        """Return the outputs of a layer from its inputs and what its attention found."""
        hidden = torch.addmm(hidden, found, layer.output)
        gate, up = (self._normalised(hidden) @ layer.gate_up).chunk(2, dim=1)
        return torch.addmm(hidden, silu(gate).mul_(up), layer.down)


def _lengths(sequences: Sequence[Prompt]) -> Rows:
    return np.asarray([len(tokens) for tokens in sequences], dtype=np.int64)
