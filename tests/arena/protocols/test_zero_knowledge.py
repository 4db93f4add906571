"""Zero knowledge, by hand: who is seated, who reads what, and what is gained by foretelling.

Shapes: A agents, C channels.
"""

from __future__ import annotations

import pytest
import torch

from ludus.arena.protocol import ACCEPT, CONTINUE, ProtocolHandler
from ludus.arena.protocols._table import Nip
from ludus.core.errors import ConfigError
from tests.arena.protocols.made import gains, mute_agents, order, protocol, section

HONEST, ADVERSARIAL = 0, 1
ANSWERS = "prover:main_answers simulator:main_simulated"


@pytest.mark.covers("002-S9")
def test_the_seed_seats_the_verifier_or_the_adversary_and_the_rest_is_the_same() -> None:
    handler = protocol("zero_knowledge")
    assert handler.agent_names == ("verifier", "prover", "adversarial_verifier", "simulator")
    assert order(handler, HONEST) == [ANSWERS, "verifier:main"] * 2
    assert order(handler, ADVERSARIAL) == [ANSWERS, "adversarial_verifier:main"] * 2


def test_each_variant_of_the_base_meets_both_verifiers() -> None:
    handler = protocol("zero_knowledge", base=section("merlin_arthur"))
    starts = [order(handler, seed)[0].split(":")[0] for seed in range(4)]
    assert starts == ["prover0", "prover1", "prover0", "prover1"]
    ends = [order(handler, seed)[1].split(":")[0] for seed in range(4)]
    assert ends == ["verifier"] * 2 + ["adversarial_verifier"] * 2


def test_the_prover_is_shown_the_same_by_either_verifier() -> None:
    handler = protocol("zero_knowledge")
    names = handler.message_channel_names
    assert names == ("main", "main_answers", "main_simulated")
    seen = handler.agent_channel_visibility
    assert seen["prover"] == seen["verifier"] == seen["adversarial_verifier"] == names[:2]
    assert handler.stackelberg_sequence[2:] == (("adversarial_verifier",), ("simulator",))


def test_the_simulator_reads_questions_but_no_answer() -> None:
    handler = protocol("zero_knowledge", base=section("multi_channel_test"))
    seen = handler.agent_channel_visibility["simulator"]
    assert not [name for name in seen if name.endswith("_answers")]
    agents, place = mute_agents(handler), handler.agent_names.index("simulator")
    history = torch.arange(9).expand(1, 4, 9)
    shown = agents.rows_of(place, {"message_history": history, "round": torch.zeros(1)})
    assert shown["message_history"][0, 0].tolist() == [0, 1, 2, -1, -1, -1, 6, 7, 8]


def foretelling(handler: ProtocolHandler, index: int, seed: int, *, same: bool) -> dict[str, float]:
    """Return what is gained beside the verdict when the simulator says what the prover says, or not."""
    action = torch.zeros(1, len(handler.agent_names), 1 + len(handler.message_channel_names))
    action = action.long()
    action[:, -1, 1:] = 0 if same else 1
    found = handler.side_rewards(index, action, torch.tensor([seed]))
    assert found is not None
    return dict(zip(handler.agent_names, found[0].tolist(), strict=True))


def test_what_is_foretold_is_gained_by_simulator_and_prover_and_lost_by_the_adversary() -> None:
    handler = protocol("zero_knowledge")
    alone = {"verifier": 0.0, "prover": 11.0, "adversarial_verifier": 0.0, "simulator": 0.25}
    assert foretelling(handler, 0, HONEST, same=True) == alone
    met = {**alone, "adversarial_verifier": -0.125}
    assert foretelling(handler, 0, ADVERSARIAL, same=True) == met
    for seed in (HONEST, ADVERSARIAL):
        assert not any(foretelling(handler, 0, seed, same=False).values())
        # Questions are not foretold: nobody gains where the verifier speaks.
        assert not any(foretelling(handler, 1, seed, same=True).values())


def test_each_answer_counts_that_is_foretold_in_a_round() -> None:
    handler = protocol("zero_knowledge", base=section("mnip"))
    assert foretelling(handler, 0, HONEST, same=True)["simulator"] == 2 * 0.25


def test_the_verdict_pays_as_in_the_base_and_the_adversary_has_none() -> None:
    handler = protocol("zero_knowledge")
    honest = gains(handler, 1, ACCEPT, 1, seed=HONEST)
    assert (honest["verifier"], honest["prover"], honest["simulator"]) == (2.0, 7.0, 0.0)
    for index in (1, 3):
        for decision in (ACCEPT, CONTINUE):
            assert not any(gains(handler, index, decision, 1, seed=ADVERSARIAL).values())
    assert handler.judged(torch.tensor([HONEST, ADVERSARIAL])).tolist() == [True, False]


def test_a_base_that_pays_for_what_is_said_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Nip, "side_rewards", lambda self, index, action, seed: torch.ones(1, 2), raising=False
    )
    with pytest.raises(ConfigError, match=r"'base.kind' is nip, whose side_rewards is its own"):
        protocol("zero_knowledge")
