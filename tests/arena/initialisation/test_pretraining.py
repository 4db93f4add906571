"""Before agents meet, their bodies may learn alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from tests.arena.initialisation.test_loading import are_equal, inside, model_of
from tests.arena.sections import NEVER, parts
from tests.arena.small import MLP, small_arena
from tests.arena.small_solo import small_solo

SGD = {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
PRETRAINING: dict[str, Any] = {
    "agents": ["verifier", "prover"],
    "iterations": 2,
    "batch_size": 24,
    "optimizer": SGD,
}
FROZEN = {
    "verifier": parts(MLP),
    "prover": parts(MLP, update_schedule=NEVER),
}


def pretrained(section: dict[str, Any] | None = None, **changed: Any) -> Any:
    """Return a small run of PPO with pretraining."""
    given = {**PRETRAINING, **(section or {})}
    return small_arena(pretraining=given, **changed)


def bodies(config: Any, root: Path, name: str) -> dict[str, Any]:
    """Return the frozen prover's weights after a run."""
    result = ludus.build_trainer(config).fit(root=str(root), name=name)
    return inside(model_of(str(result.run_dir)), "members.prover.")


def test_pretraining_is_what_a_run_of_solo_agent_does(tmp_path: Path) -> None:
    alone = small_solo(
        **{
            "scenario": small_arena().scenario,
            "max_iterations": 2,
            "solo_agent.batch_size": 24,
            "optimizer": SGD,
            "max_grad_norm": None,
            "keep_every_iterations": 0,
        }
    )
    solo = bodies(alone, tmp_path, "alone")
    met = bodies(pretrained(agents=FROZEN), tmp_path, "met")
    fresh = bodies(small_arena(agents=FROZEN), tmp_path, "fresh")
    assert are_equal(inside(solo, "body."), inside(met, "body."))
    assert not are_equal(inside(solo, "body."), inside(fresh, "body."))


def test_only_bodies_are_pretrained(tmp_path: Path) -> None:
    met = bodies(pretrained(agents=FROZEN), tmp_path, "met")
    fresh = bodies(small_arena(agents=FROZEN), tmp_path, "fresh")
    for head in ("policy_head.", "value_head."):
        assert inside(met, head)
        assert are_equal(inside(met, head), inside(fresh, head))
    assert not inside(met, "solo_head.")


def test_an_agent_that_is_not_named_is_not_pretrained(tmp_path: Path) -> None:
    met = bodies(pretrained({"agents": ["verifier"]}, agents=FROZEN), tmp_path, "met")
    fresh = bodies(small_arena(agents=FROZEN), tmp_path, "fresh")
    assert are_equal(met, fresh)


def test_the_body_of_the_value_is_pretrained_too(tmp_path: Path) -> None:
    config = pretrained(agents=FROZEN, **{"rl.shared_body": False})
    met = bodies(config, tmp_path, "met")
    assert are_equal(inside(met, "body."), inside(met, "value_body."))


def test_a_body_whose_factor_is_0_is_pretrained_all_the_same(tmp_path: Path) -> None:
    still = {"body": 0.0, "policy_head": 1.0, "value_head": 1.0, "solo_head": 1.0}
    agents = {"verifier": parts(MLP), "prover": parts(MLP, learning_rate_factors=still)}
    met = inside(bodies(pretrained(agents=agents), tmp_path, "met"), "body.")
    frozen = inside(bodies(pretrained(agents=FROZEN), tmp_path, "frozen"), "body.")
    assert are_equal(met, frozen)


@pytest.mark.parametrize(
    "section",
    [
        {"iterations": 1},
        {"batch_size": 8},
        {"optimizer": {**SGD, "learning_rate": 0.2}},
    ],
)
def test_each_key_changes_what_is_learned(section: dict[str, Any], tmp_path: Path) -> None:
    met = bodies(pretrained(section, agents=FROZEN), tmp_path, "met")
    other = bodies(pretrained(agents=FROZEN), tmp_path, "other")
    assert not are_equal(met, other)


def test_pretraining_is_logged_after_each_pass(tmp_path: Path) -> None:
    result = ludus.build_trainer(pretrained()).fit(root=str(tmp_path))
    lines = Path(str(result.run_dir), "metrics.jsonl").read_text().splitlines()
    told = [line for line in lines if "pretraining/eval/prover/solo_accuracy" in line]
    assert len(told) == PRETRAINING["iterations"]
    assert "pretraining/verifier/solo_loss" in told[0]


@pytest.mark.covers("002-M6", "002-D9")
def test_the_total_of_iterations_counts_pretraining() -> None:
    with_it, without = (
        ludus.build_trainer(one).num_total_iterations for one in (pretrained(), small_arena())
    )
    assert with_it == without + PRETRAINING["iterations"]
    assert without == 3 + 2


def test_pretraining_begins_with_what_was_loaded(tmp_path: Path) -> None:
    first = ludus.build_trainer(small_arena(seed=5)).fit(root=str(tmp_path), name="first")
    load = {"run": str(first.run_dir), "model": "final", "agent": "prover"}
    agents = {**FROZEN, "prover": parts(MLP, update_schedule=NEVER, load=load)}
    still = {"optimizer": {**SGD, "learning_rate": 1e-30}}
    met = bodies(pretrained(still, agents=agents), tmp_path, "met")
    assert are_equal(met, inside(model_of(str(first.run_dir)), "members.prover."))


def test_agents_that_share_a_body_pretrain_it_together(tmp_path: Path) -> None:
    agents = {
        "verifier": parts(MLP, shares_body_of="prover", update_schedule=NEVER),
        "prover": parts(MLP),
    }
    trainer = ludus.build_trainer(pretrained(agents=agents))
    trainer.fit(runtime=InMemoryRuntime)
    members = trainer.agents.members
    assert members["verifier"].body is members["prover"].body


@pytest.mark.parametrize(
    ("section", "agents", "sentence"),
    [
        ({"agents": ["judge"]}, None, "'pretraining.agents' names judge, which is no agent"),
        ({"agents": ["prover", "prover"]}, None, "names prover twice"),
        (
            {"agents": ["prover"]},
            {
                "verifier": parts(MLP),
                "prover": {"kind": "random", "update_schedule": NEVER, "load": None},
            },
            "an agent of kind random, which has no body",
        ),
        (
            {"agents": ["prover"]},
            {"verifier": parts(MLP), "prover": parts(MLP, shares_body_of="verifier")},
            "whose body is that of verifier; name verifier too",
        ),
    ],
)
def test_names_that_cannot_be_pretrained_are_refused(
    section: dict[str, Any], agents: Any, sentence: str
) -> None:
    changed = {} if agents is None else {"agents": agents}
    with pytest.raises(ConfigError, match=sentence):
        pretrained(section, **changed)
