"""What a network holds beside its trained weights is saved, restored, kept with the best, and exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import LudusError
from ludus.nn import compiling
from ludus.nn.recording import Recorded
from ludus.rl.agent import Agent
from ludus.run.checkpoint import digest_of
from ludus.run.models import read_model
from ludus.run.storage import Storage
from ludus.testing import trainers
from tests.rl.odd_networks import KINDS, batch_for, fitted, odd, prepared

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
# Each agent with everything at once, and each single oddity with one agent or two.
CASES = [(kind, "all") for kind in KINDS]
CASES += [("dqn", "replaced_mean"), ("iqn", "branch"), ("sac", "frozen"), ("ppo", "extra")]
CASES += [("sac", "extra"), ("ppo", "fleeting_mean")]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace as for the compiler, but run the trace as it is, which costs a tenth of a second."""
    monkeypatch.setattr(compiling, "BACKEND", "eager")


def check_kills(config: Any, root: Path) -> None:
    trainers.check_kill_anywhere(lambda: ludus.build_trainer(config), root, max_kills=1)


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
    assert isinstance(taped.agent.update, Recorded)
    assert taped.agent.update.is_possible
    monkeypatch.setattr(Agent, "record", lambda self: None)
    plain = fitted(config, tmp_path, "plain")
    states = [digest_of(dict(trainer.agent.state_dict())) for trainer in (taped, plain)]
    assert states[0] == states[1]


@pytest.mark.parametrize("kind", ["dqn", "sac", "ppo"])
@pytest.mark.usefixtures("traced")
def test_a_traced_run_with_an_odd_network_is_the_plain_one(tmp_path: Path, kind: str) -> None:
    made = {}
    for is_compiled in (False, True):
        # With dropout the two would draw in another order.
        config = odd(kind, "buffers", known=True, compile=is_compiled)
        made[is_compiled] = fitted(config, tmp_path, str(is_compiled)).agent
    assert made[True].is_compiled
    for name, part in made[False].learned().items():
        found = made[True].learned()[name].state_dict()
        torch.testing.assert_close(found, part.state_dict(), rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("traced")
def test_a_traced_run_with_dropout_and_buffers_is_exact(tmp_path: Path) -> None:
    class Interrupt:
        at = 5

        def after_train_step(self, run: Any) -> None:
            run.interrupted = run.counters["opt_steps"] == self.at

    states = []
    for name in ("straight", "cut", "cut"):
        trainer: Any = ludus.build_trainer(
            odd("dqn", "all", known=True, compile=True, **{"steps.max_opts": 11})
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
    weights, _ = read_model(Storage(tmp_path / "run"), best["model"])
    again: Any = prepared(odd(kind, part, **{"optimizer.learning_rate": 0.5}))
    for _ in range(3):
        again.agent.update(*batch_for(again.agent))
    again.agent.load_weights(weights)
    assert again.evaluations.own.evaluate(again.agent)[0] == best["score"]


def test_an_evaluation_leaves_no_trace_in_the_network(tmp_path: Path) -> None:
    """Not even in one that moves its buffers in eval mode too."""
    config = odd("dqn", "restless", **{"steps.eval_interval": 1})
    states = []
    for name, episodes in (("few", 1), ("many", 5)):
        trainer = fitted(config.replace(**{"evaluation.episodes": episodes}), tmp_path, name)
        states.append(digest_of(dict(trainer.agent.learner.state_dict())))
    assert states[0] == states[1]


@pytest.mark.parametrize("known", [False, True], ids=["plain", "taped"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_not_finite_moves_no_buffer(kind: str, known: bool) -> None:
    agent = prepared(odd(kind, "batch_norm", known=known)).agent
    agent.update(*batch_for(agent))
    before = {name: digest_of(dict(part.state_dict())) for name, part in agent.learned().items()}
    rows, *others = batch_for(agent)
    rows[:, : agent.spec.obs_shape[0]] = torch.nan
    agent.update(rows, *others)
    for name in ("q", "critics", "actor", "network"):
        if name in before:
            assert digest_of(dict(agent.learned()[name].state_dict())) == before[name]


def test_a_state_without_buffers_as_older_versions_wrote_it_is_taken(tmp_path: Path) -> None:
    agent, other = (prepared(odd("dqn", "all")).agent for _ in range(2))
    agent.update(*batch_for(agent))
    state = agent.state_dict()
    trained = agent.learner.flat.names
    for weights in (state["networks"]["q"]["weights"], state["networks"]["target"]):
        for name in [name for name in weights if name not in trained]:
            del weights[name]
    other.load_state_dict(state)
    assert torch.equal(other.learner.flat.vector, agent.learner.flat.vector)


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
