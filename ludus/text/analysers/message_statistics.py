"""The analyser `message_statistics`: the lengths of each agent's answers and the words it uses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ludus.arena.protocol import ProtocolHandler
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.text.analyser import TextAnalyser
from ludus.text.nested import NestedArrayDict


class MessageStatisticsConfig(StrictConfig):
    """No options."""

    kind: Literal["message_statistics"]
    """Lengths and vocabulary of the answers of each agent."""


@register("text_analyser", "message_statistics")
class MessageStatistics(TextAnalyser):
    """Counts characters, words and distinct words of the answers that each agent gave.

    `word_entropy` is the entropy, in bits, of the distribution of its words; `distinct` is the share of
    answers that differ from all earlier ones. An agent that answered nothing has no metrics.
    """

    Config = MessageStatisticsConfig

    def analyse(self, rollouts: NestedArrayDict, handler: ProtocolHandler) -> Mapping[str, float]:
        """Return the metrics of each agent, by `agent/name`."""
        found: dict[str, float] = {}
        for which, name in enumerate(handler.agent_names):
            active_BT = rollouts["agents", "active"][..., which]
            texts = rollouts["agents", "text"][..., which][active_BT].tolist()
            for key, value in _statistics([text or "" for text in texts]):
                found[f"{name}/{key}"] = value
        return found


def _statistics(texts: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield the statistics of some answers; none of no answers."""
    if not texts:
        return
    words = Counter(word for text in texts for word in text.split())
    yield "characters", sum(map(len, texts)) / len(texts)
    yield "words", words.total() / len(texts)
    yield "silent", sum(not text.strip() for text in texts) / len(texts)
    yield "distinct", len(set(texts)) / len(texts)
    yield "vocabulary", float(len(words))
    yield "word_entropy", _entropy(words)


def _entropy(counts: Counter[str]) -> float:
    """Return the entropy of a distribution in bits, 0 of an empty one."""
    total = counts.total()
    return math.fsum(count / total * math.log2(total / count) for count in counts.values())
