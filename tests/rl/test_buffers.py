"""What a network holds beside its trained weights is saved, restored, kept with the best, and exact."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import LudusError
from ludus.core.states import StateError
from ludus.nn.engines import compiled
from ludus.nn.engines.compiled import CompiledMethod
from ludus.nn.engines.tape import Taped
from ludus.nn.module_state import EXTRA, ModuleState, extra_to_tensor
from ludus.store.checkpoint import digest_of
from ludus.store.local import LocalStorage
from ludus.store.manifest import FirstManifest
from ludus.store.models import read_model
from ludus.store.strict_json import dump_json
from ludus.testing import trainers
from tests.rl.odd_networks import KINDS, batch_for, engine_of, fitted, odd, prepared
from tests.rl.small import SELDOM

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
# Each agent with everything at once, and each single oddity with one agent or two.
CASES = [(kind, "all") for kind in KINDS]
CASES += [("dqn", "replaced_mean"), ("iqn", "branch"), ("sac", "frozen"), ("ppo", "extra")]
CASES += [("sac", "extra"), ("ppo", "fleeting_mean")]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace as for the compiler, but run the trace as it is, which costs a tenth of a second."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")


def check_kills(config: Any, root: Path) -> None:
    """Kill at the first, the middle and the last boundary: only in the middle has a buffer moved."""
    config = config.replace(**SELDOM)
    trainers.check_kill_anywhere(lambda: ludus.build_trainer(config), root, max_kills=2)


@pytest.mark.parametrize(("kind", "part"), CASES)
def test_a_run_with_an_odd_network_is_exact(tmp_path: Path, kind: str, part: str) -> None:
    check_kills(odd(kind, part), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_taped_run_with_an_odd_network_is_exact_and_a_plain_one(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout draws anew at every step of the tape; batch norm and a running mean move on."""
    config = odd(kind, "all", known=True)
    check_kills(config, tmp_path)
    taped = fitted(config, tmp_path, "taped")
    assert isinstance(engine_of(taped.agent), Taped)
    assert engine_of(taped.agent).is_possible
    plain = fitted(config.replace(engine="eager"), tmp_path, "plain")
    states = [digest_of(dict(trainer.agent.state_dict())) for trainer in (taped, plain)]
    assert states[0] == states[1]


# With dropout the two would draw in another order.
@pytest.mark.parametrize(
    ("kind", "part"),
    [("dqn", "buffers"), ("sac", "buffers"), ("ppo", "buffers"), ("dqn", "replaced_mean")],
)
@pytest.mark.usefixtures("traced")
def test_a_traced_run_with_an_odd_network_is_the_plain_one(
    tmp_path: Path, kind: str, part: Any
) -> None:
    made = {}
    for is_compiled in (False, True):
        plain = "eager" if part == "replaced_mean" else "tape"
        config = odd(kind, part, known=True, engine="compiled" if is_compiled else plain)
        made[is_compiled] = fitted(config, tmp_path, str(is_compiled)).agent
    assert isinstance(engine_of(made[True]), CompiledMethod)
    for name, network in made[False].learned().items():
        found = made[True].learned()[name].state_dict()
        torch.testing.assert_close(found, network.state_dict(), rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("traced")
def test_a_traced_run_with_dropout_and_buffers_is_exact(tmp_path: Path) -> None:
    class Interrupt:
        at = 5

        def after_train_step(self, run: Any) -> None:
            run.interrupted = run.counters["opt_steps"] == self.at

    states = []
    for name in ("straight", "cut", "cut"):
        trainer: Any = ludus.build_trainer(
            odd("dqn", "all", known=True, engine="compiled", **{"steps.max_opt_steps": 11})
        )
        interrupt = Interrupt()
        interrupt.at = 5 if len(states) == 1 else -1
        trainer.add(interrupt)
        trainer.fit(root=str(tmp_path), name=name, resume=True)
        states.append(digest_of(dict(trainer.agent.state_dict())))
    assert states[0] == states[2] != states[1]


@pytest.mark.parametrize(("kind", "part"), [c for c in CASES if c[1] != "branch"])
def test_the_kept_best_comes_to_the_same_score_again(tmp_path: Path, kind: str, part: str) -> None:
    trainer = fitted(odd(kind, part), tmp_path)
    best = trainer.best()
    weights, _ = read_model(LocalStorage(tmp_path / "run"), best["model"])
    again: Any = prepared(odd(kind, part, **{"optimizer.learning_rate": 0.5}))
    for _ in range(3):
        again.agent.execute(*batch_for(again.agent))
    again.agent.load_weights(weights)
    assert again.evaluations.own.evaluate(again.agent)[0] == best["score"]


def test_an_evaluation_leaves_no_trace_in_the_network(tmp_path: Path) -> None:
    """Not even in one that moves its buffers in eval mode too."""
    config = odd("dqn", "restless", **{"steps.evaluate_every_opt_steps": 1})
    states = []
    for name, episodes in (("few", 1), ("many", 5)):
        trainer = fitted(config.replace(**{"evaluation.episodes": episodes}), tmp_path, name)
        states.append(digest_of(dict(trainer.agent.learner.state_dict())))
    assert states[0] == states[1]


@pytest.mark.parametrize("known", [False, True], ids=["plain", "taped"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_not_finite_moves_no_buffer(kind: str, known: bool) -> None:
    agent = prepared(odd(kind, "batch_norm", known=known)).agent
    agent.execute(*batch_for(agent))
    before = {name: digest_of(dict(part.state_dict())) for name, part in agent.learned().items()}
    rows, *others = batch_for(agent)
    rows[:, : agent.spec.obs_shape[0]] = torch.nan
    agent.execute(rows, *others)
    for name in ("q", "critics", "actor", "network"):
        if name in before:
            assert digest_of(dict(agent.learned()[name].state_dict())) == before[name]


@pytest.mark.parametrize("lost", ["q", "target"])
@pytest.mark.parametrize("part", ["running_mean", "frozen", "extra"])
def test_a_state_with_nothing_but_trained_weights_is_refused(part: str, lost: str) -> None:
    agent, other = (prepared(odd("dqn", part)).agent for _ in range(2))
    if part == "frozen" and lost == "target":
        pytest.skip("a target has no frozen weights of its own")
    agent.execute(*batch_for(agent))
    state = agent.state_dict()
    before = digest_of(other.state_dict())
    held = state["networks"][lost]
    held = held["weights"] if lost == "q" else held
    for name in [name for name in held if name not in agent.learner.flat.names]:
        del held[name]
    where = "networks/q/weights" if lost == "q" else "networks/target"
    with pytest.raises(StateError, match=rf"'{where}/body\.layers\.1\.\w+' is missing"):
        other.load_state_dict(state)
    assert digest_of(other.state_dict()) == before


def test_a_run_from_before_buffers_were_saved_goes_on_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupt:
        def after_train_step(self, run: Any) -> None:
            run.interrupted = run.counters["opt_steps"] == 5

    config = odd("dqn", "running_mean")
    trainer: Any = ludus.build_trainer(config)
    trainer.add(Interrupt(), name="interrupt")
    with monkeypatch.context() as older:
        older.setattr(ModuleState, "tensors", lambda module_state: {})
        assert trainer.fit(root=str(tmp_path), name="run").exact
    for path in tmp_path.glob("run/checkpoints/*/manifest.json"):
        found = json.loads(path.read_text())
        fields = {name: found[name] for name in FirstManifest.model_fields if name != "seal"}
        fields["format"] = 1
        seal = hashlib.sha256(dump_json(fields)).hexdigest()
        path.write_bytes(dump_json({**fields, "seal": seal}))
    note = tmp_path / "run" / "run.json"
    known = json.loads(note.read_text())
    note.write_text(json.dumps({name: known[name] for name in known if name != "run_id"}))
    for _ in range(2):
        again: Any = ludus.build_trainer(config)
        again.add(Interrupt(), name="interrupt")
        result = again.fit(root=str(tmp_path), name="run", resume=True)
        assert not result.exact
        assert len(result.inexact_because) == 1
        assert "before the buffers of networks were saved" in result.inexact_because[0]
        assert "q, target started from scratch" in result.inexact_because[0]


def agent_of(kind: str) -> Any:
    agent = prepared(odd(kind, "extra")).agent
    agent.execute(*batch_for(agent))
    return agent


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_takes_all_of_a_state_or_nothing(kind: str) -> None:
    agent, other = agent_of(kind), prepared(odd(kind, "extra")).agent
    before = digest_of(other.state_dict())
    for name in agent.learned():
        for spoil in (torch.zeros(1), extra_to_tensor({"stranger": 1})):
            state = agent.state_dict()
            weights = state["networks"][name]
            weights = weights.get("weights", weights)
            if not (extra := [key for key in weights if key.endswith(EXTRA)]):
                continue
            weights[extra[0]] = spoil
            with pytest.raises(StateError, match=f"'networks/{name}/"):
                other.load_state_dict(state)
            assert digest_of(other.state_dict()) == before
    state = agent.state_dict() | {"normaliser": {"observed": None}}
    with pytest.raises(StateError, match="'normaliser"):
        other.load_state_dict(state)
    assert digest_of(other.state_dict()) == before


def test_ppo_takes_nothing_of_a_state_whose_watch_does_not_fit() -> None:
    agent, other = agent_of("ppo"), prepared(odd("ppo", "extra")).agent
    before = digest_of(other.state_dict())
    with pytest.raises(StateError, match="'watch/beta' is missing"):
        other.load_state_dict(agent.state_dict() | {"watch": {}})
    assert digest_of(other.state_dict()) == before


@pytest.mark.parametrize("change", ["lost", "more", "shape", "type"])
def test_buffers_that_do_not_fit_are_refused(change: str) -> None:
    agent = prepared(odd("dqn", "running_mean")).agent
    weights = agent.weights()
    name = "q.body.layers.1.mean"
    if change == "lost":
        del weights[name]
    elif change == "more":
        weights["q.body.layers.1.other"] = weights[name]
    elif change == "shape":
        weights[name] = torch.zeros(1)
    else:
        weights[name] = weights[name].double()
    with pytest.raises(LudusError, match=r"body\.layers\.1\.\w+' .* build the model as it was"):
        agent.load_weights(weights)


class Change:
    """Changes the dropout of a network after some updates."""

    def __init__(self, layer: torch.nn.Dropout) -> None:
        self.layer = layer

    def after_collect(self, run: Any) -> None:
        if run.counters["opt_steps"] >= 8:
            self.layer.p = 0.0


def test_a_layer_that_a_hook_changes_is_changed_for_a_taped_agent_too(tmp_path: Path) -> None:
    digests = []
    for engine in ("eager", "tape"):
        trainer: Any = ludus.build_trainer(odd("dqn", "dropout", known=True, engine=engine))
        trainer.prepare(max_steps=None)
        layers = [
            m for m in trainer.agent.modules()[0].modules() if isinstance(m, torch.nn.Dropout)
        ]
        trainer.add(Change(layers[0]))
        trainer.fit(root=str(tmp_path), name=engine)
        assert layers[0].p == 0.0
        digests.append(digest_of(dict(trainer.agent.state_dict())))
    assert digests[0] == digests[1]
