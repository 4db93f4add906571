"""Keys that others keep from being read are refused, with the value that says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.config.base import from_data
from ludus.config.migrations import migrate
from ludus.core.errors import ConfigError
from tests.arena.protocols.made import section
from tests.arena.sections import EVEN_RATES, parts
from tests.arena.small import MLP, TO_GO, example, small_arena
from tests.config.older import as_version_4

FASTER = {**EVEN_RATES, "body": 2.0}
FORCED = {"kind": "solo_verifier", "force_guess": "y", "verifier_reward": 1.0,
          "verifier_incorrect_reward": -1.0, "verifier_terminated_reward": -1.0}  # fmt: skip
MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "how far a value is off that nobody trains": (
        "reinforce",
        {**TO_GO, "rl.loss_critic_type": "l1"},
        "'rl.loss_critic_type' is l1, but no value is trained; set it to null",
    ),
    "a body for values that nobody trains": (
        "reinforce",
        {**TO_GO, "rl.shared_body": False},
        "'rl.shared_body' is false, but no value is trained that needs a body; set it to true",
    ),
    "no way to say how far a value is off": (
        "vanilla_ppo",
        {"rl.loss_critic_type": None},
        "'rl.loss_critic_type' is null, but values are trained; set it to smooth_l1",
    ),
    "the rate of a body that is another's": (
        "vanilla_ppo",
        {
            "agents": {
                "verifier": parts(MLP),
                "prover": parts(MLP, shares_body_of="verifier", learning_rate_factors=FASTER),
            }
        },
        "'agents.prover': 'learning_rate_factors.body' is 2, but the body is that of verifier",
    ),
    "nothing that an agent does is its own": (
        "vanilla_ppo",
        {"protocol": FORCED, "agents": {"verifier": parts(MLP)}, "rl.minibatch_size": 4},
        "'protocol.force_guess' is y, but nobody speaks under solo_verifier",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_key_that_nothing_would_read_is_refused(mistake: str) -> None:
    kind, changed, sentence = MISTAKES[mistake]
    with pytest.raises(ConfigError) as told:
        small_arena(kind, **changed)
    assert sentence in str(told.value)


def older(config: Any) -> dict[str, Any]:
    """Return the data of a file of version 2, which had none of the keys that came with version 3."""
    data = as_version_4(config) | {"version": 2}
    protocol = data["protocol"]
    if protocol["kind"] == "debate":
        del protocol["verifier_first"], protocol["prover0_first"]
    if protocol["kind"] == "mnip":
        del protocol["sequential"], protocol["prover0_first"]
    if "spg" in data:
        del data["spg"]["stackelberg_sequence"]
    return data


def with_two_provers(kind: str, **changes: object) -> Any:
    agents = {name: parts(MLP) for name in ("verifier", "prover0", "prover1")}
    whole = 6 if kind == "debate" else 4
    rounds = {"rl.minibatch_size": 8 * whole, "protocol": section(kind, **changes)}
    return small_arena("spg", agents=agents, **rounds)


@pytest.mark.parametrize(
    "config",
    [
        example("vanilla_ppo-debate"),
        small_arena("spg"),
        with_two_provers("debate"),
        with_two_provers("mnip"),
    ],
    ids=["at once", "spg", "debate", "mnip"],
)
def test_a_file_of_version_2_keeps_its_order_of_turns_and_leaders(config: Any) -> None:
    assert from_data(older(config), source="old.yaml") == config


def test_the_base_of_zero_knowledge_is_brought_to_this_version_too() -> None:
    config = example("vanilla_ppo").model_dump() | {"version": 2}
    base = section("debate")
    config["protocol"] = section("zero_knowledge", base=dict(base))
    del config["protocol"]["base"]["prover0_first"]
    assert migrate(config, source="old.yaml")[0]["protocol"]["base"] == base
