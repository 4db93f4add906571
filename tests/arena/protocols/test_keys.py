"""Each key of each protocol changes the episode as its sentence says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ludus.arena.protocol import ACCEPT, CONTINUE, ProtocolHandler
from ludus.config.registry import find
from tests.arena.protocols.made import SPOKEN, gains, order, protocol, section

ObservationSizes = Callable[[ProtocolHandler], object]
ZERO, ONE = "prover0:prover0_channel", "prover1:prover1_channel"


def last(handler: ProtocolHandler) -> int:
    """Return the last round."""
    return handler.max_message_rounds - 1


def verifier_gains(decision: int, y: int, index: int | None = None) -> ObservationSizes:
    """Return what looks at the reward of a verifier that decides so."""

    def seen(handler: ProtocolHandler) -> float:
        return gains(handler, last(handler) if index is None else index, decision, y)["verifier"]

    return seen


def first_decision(handler: ProtocolHandler) -> int:
    """Return the first round in which a decision counts."""
    seed = torch.zeros(1, dtype=torch.int64)
    rounds = range(handler.max_message_rounds)
    return next(index for index in rounds if handler.deciders(index, seed).any())


def first_question(handler: ProtocolHandler) -> int:
    """Return the first round in which the verifier speaks."""
    return ["verifier" in said for said in order(handler)].index(True)


def convinced(handler: ProtocolHandler) -> float:
    """Return the most that a prover gains by accept where that is wrong."""
    found = gains(handler, last(handler), ACCEPT, 0)
    return max(found[name] for name in handler.prover_names)


def provers_gain(handler: ProtocolHandler) -> list[float]:
    """Return what the provers gain when the verifier lets the rounds run out."""
    found = gains(handler, last(handler), CONTINUE, 1)
    return [found[name] for name in handler.prover_names]


OF_VERIFIERS: dict[str, tuple[Any, ObservationSizes, object, object]] = {
    "verifier_reward": (4.0, verifier_gains(1, 1), 2.0, 4.0),
    "verifier_incorrect_reward": (-4.0, verifier_gains(1, 0), -3.0, -4.0),
    "verifier_terminated_reward": (-4.0, verifier_gains(2, 0), -5.0, -4.0),
    "force_guess": ("y", verifier_gains(1, 0), -3.0, 2.0),
}
OF_ROUNDS: dict[str, tuple[Any, ObservationSizes, object, object]] = {
    "prover_reward": (4.0, convinced, 7.0, 4.0),
    "max_message_rounds": (12, lambda handler: len(order(handler)), 4, 12),
    "min_message_rounds": (4, first_decision, 1, 3),
    "verifier_continue_reward": (0.75, verifier_gains(2, 0, 1), 0.5, 0.75),
}
CHANGES: dict[tuple[str, str], tuple[Any, ObservationSizes, object, object]] = {
    **{(kind, key): row for kind in SPOKEN for key, row in OF_VERIFIERS.items()},
    **{(kind, key): row for kind in SPOKEN for key, row in OF_ROUNDS.items()},
    ("debate", "max_message_rounds"): (12, lambda handler: len(order(handler)), 6, 12),
    ("debate", "min_message_rounds"): (4, first_decision, 2, 5),
    ("debate", "verifier_continue_reward"): (0.75, verifier_gains(2, 0, 2), 0.5, 0.75),
    ("nip", "verifier_first"): (True, first_question, 1, 0),
    ("mnip", "verifier_first"): (True, first_question, 1, 0),
    ("debate", "verifier_first"): (True, first_question, 2, 0),
    ("debate", "sequential"): (False, first_question, 2, 1),
    ("debate", "prover0_first"): (False, lambda handler: order(handler)[0], ZERO, ONE),
    ("mnip", "sequential"): (True, first_question, 1, 2),
    ("mnip", "prover0_first"): (False, lambda handler: order(handler)[0], f"{ZERO} {ONE}", ONE),
    ("debate", "provers_hear_each_other"): (
        False,
        lambda handler: handler.agent_channel_visibility["prover1"],
        ("prover0_channel", "prover1_channel"),
        ("prover1_channel",),
    ),
    **{
        (kind, "shared_reward"): (
            True,
            provers_gain,
            [0.0] * len(protocol(kind).prover_names),
            [-5.0] * len(protocol(kind).prover_names),
        )
        for kind in SPOKEN
    },
}
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("nip", "verifier_first"): {"max_message_rounds": 3},
    ("mnip", "verifier_first"): {"max_message_rounds": 3},
    ("debate", "verifier_first"): {"max_message_rounds": 4},
    ("mnip", "sequential"): {"max_message_rounds": 6},
    ("mnip", "prover0_first"): {"max_message_rounds": 6, "sequential": True},
}
"""What keys need with them: another number of rounds, or an order."""


def foretold(name: str, seed: int) -> ObservationSizes:
    """Return what looks at the gain of an agent by an answer that is foretold."""
    return lambda handler: gains(handler, 0, CONTINUE, 0, seed=seed)[name]


CHANGES |= {
    ("zero_knowledge", "base"): (section("adp"), lambda handler: len(order(handler)), 4, 2),
    ("zero_knowledge", "simulator_reward"): (1.5, foretold("simulator", 0), 0.25, 1.5),
    ("zero_knowledge", "adversary_penalty"): (
        1.5,
        foretold("adversarial_verifier", 1),
        -0.125,
        -1.5,
    ),
    ("zero_knowledge", "prover_simulated_reward"): (0.0, foretold("prover", 0), 11.0, 0.0),
}
EVERY = [
    (kind, key)
    for kind in SPOKEN
    for key in find("protocol", kind).Config.model_fields
    if key != "kind"
]


@pytest.mark.covers("002-S9", "002-S10")
@pytest.mark.parametrize(("kind", "key"), EVERY)
def test_a_key_changes_the_episode_as_its_sentence_says(kind: str, key: str) -> None:
    value, seen, before, after = CHANGES[kind, key]
    async_evaluator = BESIDE.get((kind, key), {})
    assert seen(protocol(kind)) == before
    assert seen(protocol(kind, **{key: value}, **async_evaluator)) == after
