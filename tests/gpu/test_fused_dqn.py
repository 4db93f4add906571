"""Rounds of host and agent captured as CUDA graphs: the same to the bit, exact on resume, without a wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.games.rules.hironaka import Hironaka
from ludus.games.trainers.fused_dqn import DQNTrainer
from ludus.testing.trainers import check_kill_anywhere
from tests.games.dqn.small import Ran, small_dqn

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    # torch warns, once a process, that the mode does not find every wait.
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CUDA: dict[str, Any] = {
    "settings.device": "cuda", "engine": "auto", "max_rounds": 16, "keep_every_rounds": 0,
    "evaluate_every_rounds": 8,
}  # fmt: skip
MORIN = {"kind": "morin", "weights": [3.0, 1.0, 2.0]}
SPARRING = {
    "host.sparring": [
        {"player": {"kind": kind}, "share": 0.2} for kind in ("random", "choose_last")
    ]
    + [{"player": MORIN, "share": 0.3}],
    "agent.sparring": [
        {"player": {"kind": "zeillinger", "lexicographic": True}, "share": 0.3},
        {"player": {"kind": "spivakovsky", "variant": "random"}, "share": 0.2},
        {"player": {"kind": "spivakovsky", "variant": "full"}, "share": 0.2},
    ],
}


def on_cuda(**changed: Any) -> Any:
    return small_dqn(**{**CUDA, **changed})


def ending(trainer: DQNTrainer) -> dict[str, Tensor]:
    """Return what a run has come to: weights, targets, and all that is remembered."""
    found: dict[str, Tensor] = {}
    for role, learner in trainer.learners.items():
        found |= {name: t.cpu() for name, t in learner.weights().items()}
        found |= {f"{role}.target{i}": t.cpu() for i, t in enumerate(learner.target.vectors)}
        found |= {f"{role}.{name}": t.cpu() for name, t in learner.replay._rings.items()}
        found[f"{role}.pushed"] = learner.replay.total_pushed.cpu()
        found[f"{role}.draws"] = learner.replay.generator.get_state()
        found[f"{role}.totals"] = learner.totals.cpu()
    return found


def different(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    return [name for name, value in one.items() if not torch.equal(value, other[name])]


def events(root: Path, name: str) -> list[str]:
    lines = (root / name / "events.jsonl").read_text().splitlines()
    return [one["reason"] for one in map(json.loads, lines) if one["event"] == "engine"]


def is_captured(trainer: DQNTrainer, role: str) -> bool:
    collecting = trainer._execution._collecting.get(role)
    return collecting is not None and len(collecting._collect.update._graphs) == 1


@pytest.mark.covers("001-M7")
@pytest.mark.parametrize("changed", [{}, SPARRING, {"game.polytope": "vertices"}])
def test_a_run_of_captured_rounds_is_the_eager_one_to_the_bit(changed: dict[str, Any]) -> None:
    captured, eager = Ran(on_cuda(**changed)), Ran(on_cuda(**{**changed, "engine": "eager"}))
    assert captured.trainer.config.engine == "graph"
    for role in ("host", "agent"):
        assert is_captured(captured.trainer, role)
        assert not is_captured(eager.trainer, role)
        assert captured.trainer.learners[role].execute.update._graphs  # type: ignore[attr-defined]
    assert different(ending(captured.trainer), ending(eager.trainer)) == []
    assert [r.scalars for r in captured.records] == [r.scalars for r in eager.records]


LARGE: dict[str, Any] = {
    f"{role}.{key}": value
    for role in ("host", "agent")
    for key, value in {"net_arch": [128, 256, 128], "batch_size": 512, "rollout_size": 700,
                       "replay_capacity": 5000}.items()
}  # fmt: skip


@pytest.mark.parametrize("changed", [{}, LARGE])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_captured_rounds_are_the_eager_ones_in_every_precision_and_size(
    precision: str, changed: dict[str, Any]
) -> None:
    given = {**changed, "precision": precision}
    runs = [Ran(on_cuda(**given, engine=engine)) for engine in ("auto", "eager")]
    assert is_captured(runs[0].trainer, "host")
    assert different(ending(runs[0].trainer), ending(runs[1].trainer)) == []


@pytest.mark.parametrize("changed", [SPARRING, {"precision": "bfloat16"}])
def test_a_run_of_captured_rounds_killed_anywhere_ends_as_if_never_killed(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    """A resumed one warms up and captures anew, in the middle of the run."""
    config = on_cuda(**changed)
    check_kill_anywhere(lambda: ludus.build_trainer(config), tmp_path, max_kills=3)


@pytest.mark.covers("001-S12")
def test_captured_rounds_never_wait_and_their_times_are_those_of_the_gpu() -> None:
    ran = Ran(on_cuda(log_time=True, evaluate_every_rounds=0))
    timings = [record.timing for record in ran.records]
    assert [timing["host_syncs_a_round"] for timing in timings] == [0.0] * len(timings)
    for name in ("host_fit_ms", "agent_collect_ms", "host_sync_target_ms"):
        assert any(0 < timing[name] < 1000 for timing in timings if name in timing), name
    waits = Ran(on_cuda(evaluate_every_rounds=0), reward_func=waiting)
    assert max(record.timing["host_syncs_a_round"] for record in waits.records) > 0


def waiting(role: str, obs: Any, next_obs: Any, done: Tensor) -> Tensor:
    """Return rewards after looking at one."""
    return done.float() * (1.0 if bool(done.any()) else 2.0)


class First:
    """A script's own player."""

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        assert legal_BA is not None
        return legal_BA.int().argmax(1)


@pytest.mark.parametrize(
    ("given", "changed", "why"),
    [
        ({"reward_func": waiting}, {}, "script's own function"),
        ({"agent_net": First()}, {"agent": None, "opponent": "given"}, "player of your own"),
    ],
)
def test_what_cannot_be_captured_is_told_and_played_all_the_same(
    given: dict[str, Any], changed: dict[str, Any], why: str, tmp_path: Path
) -> None:
    trainer = DQNTrainer(on_cuda(**changed), **given)
    trainer.fit(root=str(tmp_path), name="told")
    assert any(why in note for note in events(tmp_path, "told"))
    assert not is_captured(trainer, "host")
    assert int(trainer.host_replay_buffer.total_pushed) > 0


class Peeking(Hironaka):
    """Reads a number of a tensor at every move, which no capture allows."""

    def done(self, state: Any) -> Tensor:
        state["points"].amax().item()
        return super().done(state)


def test_games_that_turn_out_not_to_be_capturable_go_on_eagerly(tmp_path: Path) -> None:
    ends = []
    for engine in ("auto", "eager"):
        trainer = DQNTrainer(on_cuda(engine=engine))
        _ = trainer.learners
        trainer.fused_game.__class__ = Peeking
        trainer.fit(root=str(tmp_path), name=engine)
        ends.append(ending(trainer))
    notes = events(tmp_path, "auto")
    assert any("collecting the games of the host cannot be captured" in note for note in notes)
    assert different(*ends) == []


def test_a_network_that_is_replaced_in_a_run_plays_from_then_on() -> None:
    ends = []
    for engine in ("auto", "eager"):

        class Replaces:
            def after_update(self, run: Any) -> None:
                if run.counters["round"] == 9:
                    torch.manual_seed(1)
                    trainer = self.trainer
                    net = torch.nn.Sequential(torch.nn.Linear(21, 5), torch.nn.Linear(5, 3))
                    trainer.replace_nets(agent_net=net)

        callback = Replaces()
        config = on_cuda(engine=engine)
        trainer = DQNTrainer(config)
        trainer.set_logger(ludus.Logger({"backends": []}))
        callback.trainer = trainer  # type: ignore[attr-defined]
        trainer.add(callback, name="replaces")
        from ludus.core.runtime import InMemoryRuntime

        trainer.fit(runtime=InMemoryRuntime)
        ends.append(ending(trainer))
    assert different(*ends) == []
