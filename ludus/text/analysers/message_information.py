"""The analyser `message_information`: the mutual information of what an agent says and the label.

Shapes: B episodes, T rounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

from ludus.arena.protocol import ProtocolHandler
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.text.analyser import TextAnalyser
from ludus.text.nested import NestedArrayDict


class MessageInformationConfig(StrictConfig):
    """The mutual information of messages and labels."""

    kind: Literal["message_information"]
    """The mutual information of what each agent says and the label, in bits."""
    of: Literal["answer", "first_word", "last_word", "length"]
    """The part of an answer that is compared: all of it, a word in lower case, or its number of words."""


@register("text_analyser", "message_information")
class TextInformation(TextAnalyser):
    """Estimates mutual information, in bits, by counting, with the correction of Miller and Madow.

    Counting finds information in chance: the more different messages, the more. The correction subtracts
    what independent messages and labels are expected to show; an estimate may so be below 0. With nearly as
    many different messages as episodes no estimate is good: `num_messages` says how many there were.
    """

    Config = MessageInformationConfig

    def analyse(self, rollouts: NestedArrayDict, handler: ProtocolHandler) -> Mapping[str, float]:
        """Return `agent/bits` and `agent/num_messages` for each agent that answered, over all its turns."""
        assert isinstance(self.config, MessageInformationConfig)
        part = self.config.of
        y_BT, found = rollouts["y"], dict[str, float]()
        for which, name in enumerate(handler.agent_names):
            active_BT = rollouts["agents", "active"][..., which]
            texts = rollouts["agents", "text"][..., which][active_BT].tolist()
            if texts:
                messages = [_part(text or "", part) for text in texts]
                found[f"{name}/bits"] = mutual_information(messages, y_BT[active_BT].tolist())
                found[f"{name}/num_messages"] = float(len(set(messages)))
        return found


def mutual_information(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return the mutual information of pairs in bits, estimated by Miller and Madow; 0 of no pairs.

    To the estimate of each entropy by counting (K - 1) / 2n is added, in nats, for n pairs and K values that
    occur; and I = H(first) + H(second) - H(both).
    """
    both = list(zip(first, second, strict=True))
    if not both:
        return 0.0
    # Of one value alone there is nothing to know, whatever the correction says.
    if len(set(first)) == 1 or len(set(second)) == 1:
        return 0.0
    return _entropy(first) + _entropy(second) - _entropy(both)


def _entropy(values: Sequence[Hashable]) -> float:
    """Return the corrected entropy of some values in bits."""
    counts = Counter(values).values()
    total = len(values)
    plain = math.fsum(count / total * math.log2(total / count) for count in counts)
    return plain + (len(counts) - 1) / (2 * total * math.log(2))


def _part(text: str, part: str) -> Hashable:
    words = text.casefold().split()
    match part:
        case "answer":
            return text.strip()
        case "first_word":
            return words[0] if words else ""
        case "last_word":
            return words[-1].rstrip(".!") if words else ""
        case _:
            return len(words)
