"""Agents begin with the weights of an agent of an earlier run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.core.errors import ConfigError
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.arena.sections import NEVER, parts
from tests.arena.small import MLP, small_arena
from tests.arena.small_solo import small_solo

Weights = dict[str, Tensor]


def solo_run(root: Path, **changed: Any) -> str:
    """Train agents alone, and return where the run is."""
    result = ludus.build_trainer(small_solo(**changed)).fit(root=str(root), name="alone")
    return str(result.run_dir)


def model_of(run: str, name: str = "final") -> Weights:
    return read_model(LocalStorage(run), f"models/{name}")[0]


def inside(weights: Weights, prefix: str) -> Weights:
    return {name[len(prefix) :]: one for name, one in weights.items() if name.startswith(prefix)}


def are_equal(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def loads(run: str, *, model: str = "final", agent: str = "prover", **changed: Any) -> Any:
    """Return a run of vanilla_ppo whose prover begins with an agent of an earlier run."""
    source = {"run": run, "model": model, "agent": agent}
    prover = parts(MLP, update_schedule=NEVER, load=source, **changed)
    return small_arena(agents={"verifier": parts(MLP), "prover": prover})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    return solo_run(tmp_path_factory.mktemp("earlier"))


def test_a_body_from_a_run_of_agents_alone_fits_an_rl_agent(alone: str, tmp_path: Path) -> None:
    result = ludus.build_trainer(loads(alone)).fit(root=str(tmp_path))
    before, after = model_of(alone), model_of(str(result.run_dir))
    assert are_equal(inside(before, "members.prover.body."), inside(after, "members.prover.body."))
    assert not are_equal(
        inside(before, "members.prover.body."), inside(after, "members.verifier.body.")
    )


def test_another_agent_of_the_earlier_run_gives_other_weights(alone: str, tmp_path: Path) -> None:
    result = ludus.build_trainer(loads(alone, agent="verifier")).fit(root=str(tmp_path))
    after = inside(model_of(str(result.run_dir)), "members.prover.body.")
    assert are_equal(after, inside(model_of(alone), "members.verifier.body."))
    assert not are_equal(after, inside(model_of(alone), "members.prover.body."))


def test_another_model_of_the_earlier_run_gives_other_weights(alone: str, tmp_path: Path) -> None:
    kept = next(one.name for one in Path(alone, "models").iterdir() if one.name.isdigit())
    result = ludus.build_trainer(loads(alone, model=kept)).fit(root=str(tmp_path))
    after = inside(model_of(str(result.run_dir)), "members.prover.body.")
    assert are_equal(after, inside(model_of(alone, kept), "members.prover.body."))
    assert not are_equal(after, inside(model_of(alone), "members.prover.body."))


def test_both_bodies_of_an_agent_begin_with_the_one_that_is_loaded(
    alone: str, tmp_path: Path
) -> None:
    config = loads(alone).replace(**{"rl.shared_body": False})
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    body = inside(model_of(alone), "members.prover.body.")
    after = model_of(str(result.run_dir))
    assert are_equal(body, inside(after, "members.prover.value_body."))


def test_an_rl_agent_takes_its_heads_from_an_earlier_rl_run(tmp_path: Path) -> None:
    first = ludus.build_trainer(small_arena()).fit(root=str(tmp_path), name="first")
    second = ludus.build_trainer(loads(str(first.run_dir))).fit(root=str(tmp_path), name="second")
    before, after = model_of(str(first.run_dir)), model_of(str(second.run_dir))
    assert are_equal(inside(before, "members.prover."), inside(after, "members.prover."))


def test_a_resume_needs_the_earlier_run_no_more(tmp_path: Path) -> None:
    earlier = solo_run(tmp_path / "earlier")
    whole = ludus.build_trainer(loads(earlier)).fit(root=str(tmp_path), name="whole")

    trainer = ludus.build_trainer(loads(earlier))
    # It is killed before its first checkpoint: all it has is what it kept of what it loaded.
    trainer.add(_DiesAfter("collect"))
    with pytest.raises(RuntimeError, match="killed"):
        trainer.fit(root=str(tmp_path), name="broken")
    assert not list((tmp_path / "broken" / "checkpoints").glob("*"))
    shutil.rmtree(earlier)
    again = ludus.build_trainer(loads(earlier))
    again.add(_DiesAfter("nothing"))
    again.fit(root=str(tmp_path), name="broken", resume=True)
    assert are_equal(model_of(str(whole.run_dir)), model_of(str(tmp_path / "broken")))


class _DiesAfter:
    def __init__(self, stage: str) -> None:
        self._stage = stage

    def after_collect(self) -> None:
        if self._stage == "collect":
            raise RuntimeError("killed")


def test_a_finished_run_is_evaluated_without_the_earlier_one(tmp_path: Path) -> None:
    from ludus.cli import tasks

    earlier = solo_run(tmp_path / "earlier")
    result = ludus.build_trainer(loads(earlier)).fit(root=str(tmp_path))
    shutil.rmtree(earlier)
    tasks.evaluate_run(str(result.run_dir), as_json=False)


def test_a_shared_body_is_found_with_the_agent_whose_own_it_is(tmp_path: Path) -> None:
    earlier = solo_run(
        tmp_path / "earlier",
        agents={"verifier": parts(MLP, shares_body_of="prover"), "prover": parts(MLP)},
    )
    for agent in ("verifier", "prover"):
        config = loads(earlier, agent=agent)
        result = ludus.build_trainer(config).fit(root=str(tmp_path), name=f"by-{agent}")
        after = inside(model_of(str(result.run_dir)), "members.prover.body.")
        assert are_equal(after, inside(model_of(earlier), "members.prover.body."))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- agents\n", "'agents.prover.load': .*/config.yaml is no mapping of keys; restore it"),
        ("agents: [prover]\n", "is prover, which is no agent of .*; it has none"),
        ("agents: {prover: 3, verifier: {}}\n", "is no agent of .*; it has verifier"),
        ("agents: {3: {}, prover: null}\n", "is no agent of .*; it has 3"),
    ],
)
def test_a_config_of_the_earlier_run_that_somebody_has_edited_is_one_sentence(
    text: str, sentence: str, alone: str, tmp_path: Path
) -> None:
    edited = shutil.copytree(alone, tmp_path / "edited")
    (edited / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        ludus.build_trainer(loads(str(edited))).fit(root=str(tmp_path), name="later")
    assert not (tmp_path / "later").exists()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"model": "worst"},
            "'agents.prover.load': model worst: no model is kept there; give best, last, or ",
        ),
        ({"model": "../final"}, "'agents.prover.load': model ../final: no model is kept there"),
        ({"agent": "judge"}, "'agents.prover.load.agent' is judge, which is no agent of"),
        ({"body": {"kind": "mlp", "widths": [6]}}, "'agents.prover.load': 'body.*' is float32"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence_before_a_run_begins(
    changed: dict[str, Any], sentence: str, alone: str, tmp_path: Path
) -> None:
    body = changed.pop("body", MLP)
    config = loads(alone, **changed)
    agents = {name: one.model_dump() for name, one in config.agents.items()}
    agents["prover"]["body"] = body
    with pytest.raises(ConfigError, match=sentence):
        ludus.build_trainer(config.replace(agents=agents)).fit(root=str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_an_earlier_run_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'agents\.prover\.load': .* is not a run directory"):
        ludus.build_trainer(loads(str(tmp_path / "gone"))).fit(root=str(tmp_path))
