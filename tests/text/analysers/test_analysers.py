"""Analysers of text: lengths and words of answers, and the information of messages about the label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from ludus.text.analyser import AnalysedTextRollouts
from ludus.text.analysers.message_information import (
    MessageInformationConfig,
    TextInformation,
    mutual_information,
)
from ludus.text.analysers.message_statistics import MessageStatistics, MessageStatisticsConfig
from ludus.text.nested import TEXT, NestedArrayDict
from tests.text.small import ADP, handler_of

pytestmark = pytest.mark.covers("002-S14")


def rollouts(said: Sequence[str], labels: Sequence[int]) -> NestedArrayDict:
    """One round in which the prover says something and the verifier has no turn."""
    names = handler_of(ADP).agent_names
    texts = [one if name == "prover" else "no turn" for one in said for name in names]
    shape = (len(said), 1, len(names))
    return NestedArrayDict(
        {
            "y": np.array(labels, dtype=np.int64)[:, None],
            "agents": {
                "active": np.broadcast_to(np.array(names) == "prover", shape),
                "text": np.array(texts, dtype=TEXT).reshape(shape),
            },
        },
        shape[:2],
    )


def information(said: Sequence[str], labels: Sequence[int], of: str = "answer") -> dict[str, float]:
    section = validate(
        MessageInformationConfig, {"kind": "message_information", "of": of}, source="test"
    )
    return dict(TextInformation(section).analyse(rollouts(said, labels), handler_of(ADP)))


def test_lengths_and_words_of_answers_are_counted() -> None:
    section = MessageStatisticsConfig(kind="message_statistics")
    said = ["a b", "a b", "c", " "]
    found = MessageStatistics(section).analyse(rollouts(said, [0] * 4), handler_of(ADP))
    entropy = 2 * 0.4 * math.log2(1 / 0.4) + 0.2 * math.log2(5)
    assert found == {
        "prover/characters": 2.0,
        "prover/words": 1.25,
        "prover/silent": 0.25,
        "prover/distinct": 0.75,
        "prover/vocabulary": 3.0,
        "prover/word_entropy": pytest.approx(entropy),
    }


def test_an_agent_that_answers_nothing_has_no_metrics() -> None:
    section = MessageStatisticsConfig(kind="message_statistics")
    assert MessageStatistics(section).analyse(rollouts([], []), handler_of(ADP)) == {}
    assert information([], []) == {}


def test_a_message_that_names_the_label_has_its_entropy() -> None:
    labels = [0, 1] * 5_000
    found = information([f"it is {y}" for y in labels], labels)
    assert found["prover/bits"] == pytest.approx(1.0, abs=1e-3)
    assert found["prover/num_messages"] == 2.0


def test_chance_is_not_information() -> None:
    random, biased, corrected = Random(0), 0.0, 0.0
    for _ in range(50):
        said = [str(random.randrange(20)) for _ in range(400)]
        labels = [random.randrange(2) for _ in said]
        corrected += information(said, labels)["prover/bits"] / 50
        pairs = [(one, y) for one, y in zip(said, labels, strict=True)]
        counts = [
            np.unique(values, return_counts=True, axis=0)[1] / 400
            for values in (said, labels, pairs)
        ]
        first, second, both = (-(one * np.log2(one)).sum() for one in counts)
        biased += float(first + second - both) / 50
    assert biased > 0.03
    assert abs(corrected) < 0.005


def test_one_value_alone_says_nothing() -> None:
    assert mutual_information(["a", "b", "c"], [1, 1, 1]) == 0.0
    assert mutual_information(["a"] * 3, [0, 1, 0]) == 0.0
    assert mutual_information([], []) == 0.0


@pytest.mark.parametrize(
    ("of", "said", "num_messages"),
    [
        ("answer", ["x yes", "x  yes", "x yes\n"], 2),
        ("first_word", ["Yes it is", "yes", "no"], 2),
        ("last_word", ["it is YES.", "yes", "well no!"], 2),
        ("length", ["a b", "c d", "e"], 2),
    ],
)
def test_parts_of_answers_are_compared(of: str, said: list[str], num_messages: int) -> None:
    assert information(said, [0, 1, 1], of)["prover/num_messages"] == num_messages


def test_silence_is_a_message() -> None:
    for of in ("answer", "first_word", "last_word", "length"):
        assert information(["", "a"] * 500, [0, 1] * 500, of)["prover/bits"] == pytest.approx(
            1.0, abs=0.01
        )


def test_a_run_names_them_in_its_config() -> None:
    sections = [
        MessageStatisticsConfig(kind="message_statistics"),
        MessageInformationConfig(kind="message_information", of="length"),
    ]
    found = AnalysedTextRollouts(sections)(rollouts(["a", "b c"], [0, 1]), handler_of(ADP))
    assert found["message_statistics/prover/words"] == 1.5
    assert "message_information/prover/bits" in found
    with pytest.raises(ConfigError, match="of"):
        validate(
            MessageInformationConfig, {"kind": "message_information", "of": "all"}, source="test"
        )
