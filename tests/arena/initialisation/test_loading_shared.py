"""An agent that looks with another's body loads what is its own, and leaves that body alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.arena.agents.bodies.mlp import Mlp
from ludus.core.errors import ConfigError
from tests.arena.initialisation.test_loading import Weights, are_equal, inside, model_of, solo_run
from tests.arena.sections import parts
from tests.arena.small import MLP, small_arena


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    return solo_run(tmp_path_factory.mktemp("earlier"))


class _Begun:
    """Keeps the weights of the agents when they have been loaded."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.found: Weights = {}

    def after_load_agents(self) -> None:
        self.found = self.trainer.weights()


def sharing(verifier: str | None, prover: str, root: Path, **changed: Any) -> tuple[Weights, str]:
    """Return what agents begin with that share the verifier's body, and the events of the run."""
    source = {"model": "final", "agent": "verifier"}
    loaded = None if verifier is None else {**source, "run": verifier}
    agents = {
        "verifier": parts(MLP, load=loaded),
        "prover": parts(
            MLP,
            shares_body_of="verifier",
            load={"run": prover, "model": "final", "agent": "prover"},
        ),
    }
    trainer, begun = ludus.build_trainer(small_arena(agents=agents, **changed)), _Begun()
    begun.trainer = trainer
    trainer.add(begun)
    result = trainer.fit(root=str(root), name="sharing")
    return begun.found, Path(str(result.run_dir), "events.jsonl").read_text()


@pytest.mark.parametrize("is_owner_loaded", [False, True])
def test_an_agent_that_shares_a_body_loads_its_heads_and_leaves_the_owner_s_body_alone(
    is_owner_loaded: bool, alone: str, tmp_path: Path
) -> None:
    met = str(ludus.build_trainer(small_arena()).fit(root=str(tmp_path), name="met").run_dir)
    found, events = sharing(alone if is_owner_loaded else None, met, tmp_path)
    body = inside(found, "members.verifier.body.")
    fresh: Any = ludus.build_trainer(small_arena())
    fresh.prepare(max_steps=None)
    expected = model_of(alone) if is_owner_loaded else fresh.weights()
    assert are_equal(body, inside(expected, "members.verifier.body."))
    for head in ("policy_head", "value_head"):
        prefix = f"members.prover.{head}."
        assert are_equal(inside(found, prefix), inside(model_of(met), prefix))
    assert "model final; its body is that of 'verifier'" in events
    assert events.count("its body is that of") == 1


def test_what_a_shared_body_keeps_beside_its_weights_is_the_owner_s_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_extra_state(self: Mlp, state: dict[str, str]) -> None:
        self.stamp = state["stamp"]  # type: ignore[assignment]

    monkeypatch.setattr(Mlp, "stamp", "old", raising=False)
    monkeypatch.setattr(Mlp, "get_extra_state", lambda self: {"stamp": self.stamp})
    monkeypatch.setattr(Mlp, "set_extra_state", set_extra_state)
    keys = {"engine": "eager", "max_iterations": 1, "keep_every_iterations": 0}
    met = ludus.build_trainer(small_arena(**keys)).fit(root=str(tmp_path), name="met")
    monkeypatch.setattr(Mlp, "stamp", "new")
    source = {"run": str(met.run_dir), "model": "final"}
    agents = {
        "verifier": parts(MLP, load={**source, "agent": "verifier"}),
        "prover": parts(MLP, shares_body_of="verifier", load={**source, "agent": "prover"}),
    }
    trainer: Any = ludus.build_trainer(small_arena(agents=agents, **keys))
    trainer.fit(root=str(tmp_path), name="later")
    assert trainer.agents.member("verifier").body.stamp == "old"


def test_the_body_of_values_that_an_agent_has_for_itself_is_loaded_beside_a_shared_one(
    alone: str, tmp_path: Path
) -> None:
    found, _ = sharing(None, alone, tmp_path, **{"rl.shared_body": False})
    loaded = inside(model_of(alone), "members.prover.body.")
    assert are_equal(inside(found, "members.prover.value_body."), loaded)
    assert not are_equal(inside(found, "members.verifier.body."), loaded)


def test_an_agent_whose_body_is_another_s_and_has_nothing_else_to_load_is_refused(
    alone: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="this agent, whose body is that of 'verifier'; set it"):
        sharing(None, alone, tmp_path)
