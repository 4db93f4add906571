"""The text of sampled tokens: stop texts across the borders of tokens, and text for streams."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.text.models.tokenizer import ChatTokenizer


class Vocabulary:
    """The bytes of every token."""

    def __init__(self, tokenizer: ChatTokenizer, num_logits: int) -> None:
        """`num_logits` may exceed the tokenizer's vocabulary; a token beyond it has no bytes."""
        known = min(tokenizer.vocab_size, num_logits)
        self.bytes = [tokenizer.token_bytes(token) for token in range(known)]
        self.bytes += [b""] * (num_logits - known)
        self.is_end = np.zeros(num_logits, dtype=np.bool_)
        self.is_end[list(tokenizer.ends)] = True

    def endless(self) -> Vocabulary:
        """Return the same tokens, none of which ends a sample."""
        found = copy.copy(self)
        found.is_end = np.zeros_like(self.is_end)
        return found

    def join(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of a text."""
        return b"".join([self.bytes[token] for token in tokens])

    def completing(self, stops: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return which tokens have a byte that is the last of a stop text."""
        lasts = {stop[-1] for stop in stops}
        return np.asarray([any(byte in lasts for byte in one) for one in self.bytes])


def cut(text: bytes, stops: Sequence[bytes]) -> bytes | None:
    """Return the text before the first stop text in it; None if there is none."""
    found = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(found)] if found else None


class TextStream:
    """Gives the text of a sample as it becomes certain: no half characters, and nothing of a stop text."""

    def __init__(self, stops: Sequence[bytes]) -> None:
        self._stops = stops
        self._held = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._given = 0

    def push(self, data: bytes) -> str:
        """Return the text that is certain with these bytes added."""
        self._held += data
        kept = self._num_held()
        ready = self._held[: len(self._held) - kept]
        self._held = self._held[len(ready) :]
        return self._count(self._decoder.decode(ready))

    def finish(self, text: str) -> str:
        """Return what is left of the sample's whole text."""
        return text[self._given :]

    def _count(self, text: str) -> str:
        self._given += len(text)
        return text

    def _num_held(self) -> int:
        """Return how many bytes at the end may begin a stop text."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0
