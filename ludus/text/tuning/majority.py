"""The majority task as a training file: whether a word of a and b holds more a than b."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import torch

from ludus.seeds import generator
from ludus.text.jobs import Method

LENGTH = 11
"""The number of letters of a word."""
_COUNTS = (3, 4, 7, 8)
NUM_WORDS = 990
"""How many words have 3, 4, 7 or 8 times the letter a."""
ACCEPT, REJECT = "accept", "reject"


def majority_lines(first: int, num_lines: int, *, method: Method, seed: int) -> bytes:
    """Return lines about different words: as many as asked for, from the first of a seeded order on."""
    order = torch.randperm(NUM_WORDS, generator=generator(seed, "majority")).tolist()
    words = list(_words())
    chosen = [words[index] for index in order[first : first + num_lines]]
    return b"".join(json.dumps(_line(word, method)).encode() + b"\n" for word in chosen)


def answer(word: str) -> str:
    """Return the right answer for a word."""
    return ACCEPT if 2 * word.count("a") > len(word) else REJECT


def _words() -> Iterator[str]:
    for count in _COUNTS:
        for places in itertools.combinations(range(LENGTH), count):
            yield "".join("a" if place in places else "b" for place in range(LENGTH))


def _line(word: str, method: Method) -> dict[str, object]:
    question, right = _message("user", word), answer(word)
    if method == "supervised":
        return {"messages": [question, _message("assistant", right)]}
    wrong = REJECT if right == ACCEPT else ACCEPT
    return {
        "input": {"messages": [question]},
        "preferred_output": [_message("assistant", right)],
        "non_preferred_output": [_message("assistant", wrong)],
    }


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
