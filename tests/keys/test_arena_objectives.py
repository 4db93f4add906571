"""What each key of REINFORCE and of Stackelberg policy gradients does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.arena.small import SOS, TO_GO
from tests.keys.runs import SGD, Outcome, run
from tests.keys.table import changes

ONE: dict[str, Any] = {
    "max_iterations": 1, "rl.num_epochs": 1, "rl.minibatch_size": 16, "engine": "eager",
    "keep_every_iterations": 0, "evaluate_every_iterations": 0,
}  # fmt: skip
DOWN: dict[str, Any] = {**ONE, "optimizer": SGD}
NEUMANN = {"kind": "neumann", "iterations": 2, "rho": 1.0, "scale": 0.5}
NYSTROM = {"kind": "nystrom", "rank": 3, "rho": 1.0}
LOLA = {"kind": "lola", "lookahead_rate": 1.0}


def told(outcome: Outcome, *names: str) -> list[float]:
    """Return metrics of the first record."""
    return [outcome.curve(f"train/{name}")[0] for name in names]


def ways(outcome: Outcome) -> dict[str, torch.Tensor]:
    """Return how each agent moved in the first update."""
    before, after = outcome.moments[:2]
    return {
        agent: torch.cat(
            [(after[name] - before[name]).flatten() for name in after if agent in name]
        )
        for agent in ("verifier", "prover")
    }


@changes("reinforce", "reinforce.weight")
def test_an_action_is_weighed_by_what_came_of_it_or_by_the_critics_advantage(kind: str) -> None:
    to_go = run(kind, **ONE, **TO_GO, **{"rl.gamma": 0.95})
    assert "agents/value" not in to_go.batches[0]
    gains = to_go.batches[0]["agents/advantage"][..., 0]
    steps = to_go.batches[0]["round"]
    # Rewards are given in the last of two rounds.
    assert set(gains[steps == 1].flatten().tolist()) <= {-1.0, 0.0, 1.0}
    assert {round(abs(gain), 3) for gain in gains[steps == 0].flatten().tolist()} <= {0.0, 0.95}
    for coef in (1.0, 3.0):
        valued = run(kind, **ONE, **{"reinforce.weight": {"kind": "advantage", "value_coef": coef}})
        loss, critic, rest, entropy = told(
            valued, "loss", "loss_critic", "loss_objective", "loss_entropy"
        )
        assert loss == pytest.approx(critic + rest + entropy, rel=1e-5)
        base = run(kind, **ONE, **{"reinforce.weight": {"kind": "advantage", "value_coef": 1.0}})
        assert critic == pytest.approx(coef * told(base, "loss_critic")[0], rel=1e-5)


def check_entropy(kind: str) -> None:
    key = f"{kind}.entropy_coef"
    none, some, more = (run(kind, **ONE, **{key: coef}) for coef in (0.0, 0.1, 0.3))
    losses = [told(outcome, "loss")[0] for outcome in (none, some, more)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[0] - losses[2] == pytest.approx(3 * (losses[0] - losses[1]), rel=1e-4)


@changes("reinforce", "reinforce.entropy_coef")
def test_the_entropy_counts_in_reinforce_by_its_coefficient(kind: str) -> None:
    check_entropy(kind)


@changes("spg", "spg.entropy_coef")
def test_the_entropy_counts_in_the_loss_of_each_agent_by_its_coefficient(kind: str) -> None:
    check_entropy(kind)


def check_brought_to_deviation_1(kind: str, key: str) -> None:
    rewards = {"protocol.verifier_reward": 100.0, "protocol.verifier_incorrect_reward": -100.0}
    quiet = {f"{kind}.entropy_coef": 0.0, "rl.loss_critic_type": "l1"}
    for is_on, is_large in ((True, False), (False, True)):
        outcome = run(kind, **ONE, **rewards, **quiet, **{key: is_on})
        assert (abs(told(outcome, "loss_objective")[0]) > 5) == is_large


@changes("reinforce", "reinforce.normalise_weight")
def test_weights_are_brought_to_deviation_1_where_it_is_asked_for(kind: str) -> None:
    check_brought_to_deviation_1(kind, "reinforce.normalise_weight")


@changes("spg", "spg.normalise_advantage")
def test_advantages_are_brought_to_deviation_1_where_it_is_asked_for(kind: str) -> None:
    check_brought_to_deviation_1(kind, "spg.normalise_advantage")


@changes("spg", "spg.value_coef")
def test_the_values_loss_counts_by_its_coefficient(kind: str) -> None:
    one, three = (run(kind, **ONE, **{"spg.value_coef": coef}) for coef in (1.0, 3.0))
    assert told(three, "loss_critic")[0] == pytest.approx(3 * told(one, "loss_critic")[0])


@changes("spg", "spg.variant")
def test_leaders_reckon_with_their_followers_as_the_variant_says(kind: str) -> None:
    def response(**variant: Any) -> float:
        return told(run(kind, **ONE, **{"spg.variant": variant}), "response_norm")[0]

    # The larger the damping, the smaller the answer; further terms and columns add to it.
    for inverse in (NYSTROM, NEUMANN, {"kind": "conjugate_gradient", "iterations": 3, "rho": 1.0}):
        near = response(kind="spg", inverse_hessian=inverse)
        far = response(kind="spg", inverse_hessian={**inverse, "rho": 1.5})
        assert 0 < far < near
    for inverse, more in (
        (NYSTROM, {"rank": 1}),
        (NEUMANN, {"iterations": 1}),
        (NEUMANN, {"scale": 0.1}),
    ):
        whole, other = (
            response(kind="spg", inverse_hessian=one) for one in (inverse, {**inverse, **more})
        )
        assert other != pytest.approx(whole, rel=1e-6)
    # A step that is twice as long is answered twice as much.
    assert response(**{**LOLA, "lookahead_rate": 2.0}) == pytest.approx(
        2 * response(**LOLA), rel=1e-3
    )


@changes("spg", "spg.variant")
def test_sos_weakens_the_shaping_by_its_two_keys(kind: str) -> None:
    def share(seed: int = 0, **changed: float) -> float:
        found = run(kind, seed=seed, **ONE, **{"spg.variant": {**SOS, **changed}})
        return told(found, "shaping_share")[0]

    assert share(threshold=1e-6) == 1.0
    assert 0 < share(threshold=0.999) < 1.0
    long = {"lookahead_rate": 1e5, "threshold": 1e-6}
    # In this seed the shaping goes against looking ahead: what is kept of it grows with the scaling.
    assert share(scaling=0.02, seed=1, **long) == pytest.approx(
        2 * share(scaling=0.01, seed=1, **long)
    )
    lola, same, less = (
        ways(run(kind, **DOWN, **{"spg.variant": variant}))["verifier"]
        for variant in (LOLA, {**SOS, "threshold": 1e-6}, {**SOS, "threshold": 0.999})
    )
    assert torch.equal(lola, same)
    assert not torch.equal(lola, less)


@changes("spg", "spg.stackelberg_sequence")
def test_who_leads_goes_another_way_than_who_follows(kind: str) -> None:
    usual, turned = (
        ways(run(kind, **DOWN, **{"spg.variant": LOLA, "spg.stackelberg_sequence": sequence}))
        for sequence in (None, [["prover"], ["verifier"]])
    )
    assert not torch.equal(usual["verifier"], turned["verifier"])
    assert not torch.equal(usual["prover"], turned["prover"])


@changes("spg", "spg.variant")
def test_a_clipped_variant_keeps_its_distance_from_the_policy_that_acted(kind: str) -> None:
    several = {**ONE, "rl.num_epochs": 6, "optimizer.learning_rate": 0.1}
    sections = {
        ("spg", "pspg"): {"inverse_hessian": NYSTROM}, ("lola", "pola"): {"lookahead_rate": 1.0},
        ("sos", "psos"): {"lookahead_rate": 1.0, "scaling": 0.5, "threshold": 0.1},
    }  # fmt: skip
    for (free, name), section in sections.items():
        narrow, wide = (
            run(kind, **several, **{"spg.variant": {"kind": name, "clip": clip, **section}})
            for clip in (0.01, 0.9)
        )
        once = {**several, "rl.num_epochs": 1}
        none = run(kind, **once, **{"spg.variant": {"kind": free, **section}})
        # The first step is the same for all: nothing has moved yet.
        for agent, way in ways(none).items():
            assert torch.allclose(ways(narrow)[agent], way, atol=1e-6)
        far, near = (
            torch.cat(
                [(end[key] - start[key]).flatten() for key in start if "value" not in key]
            ).norm()
            for start, end in ((one.moments[0], one.moments[-1]) for one in (wide, narrow))
        )
        assert not torch.equal(narrow.weights, wide.weights)
        assert near < far
