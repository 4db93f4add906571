"""An evaluation of PPO on device games leaves no trace, and what is given up is as if it had never begun."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games.trainers.fused_ppo import PPOTrainer
from ludus.nn.swapped_weights import restored
from ludus.process.messages import pack
from ludus.seeds import seed_everything
from tests.command_line import in_process
from tests.games.dqn.test_commands import state_of
from tests.games.ppo.small import small_ppo, small_self_play
from tests.games.ppo.test_interrupts import LONG, Asked, AskedInEvaluation
from tests.games.ppo.test_own_networks import Counting, Extra, Remembering, Said, Trunk


class Drawing(Trunk):
    """Draws from the global generators whenever it is asked."""

    def forward(self, obs: Tensor) -> Said:
        noise = np.random.random() + random.random()
        return super().forward(obs + 0.1 * noise * torch.rand_like(obs))


def made(kind: type[PPOTrainer], network: Callable[[], nn.Module], config: Any) -> Any:
    seed_everything(5)
    trainer: Any = kind(config)
    trainer.set_model(network())
    return trainer


@pytest.mark.parametrize("network", [Trunk, Counting, Extra, Remembering, Drawing])
def test_runs_with_and_without_evaluations_learn_the_same(network: Any) -> None:
    ends = []
    for every in (1, 0):
        trainer = made(PPOTrainer, network, small_ppo(engine="eager", evaluate_every_rounds=every))
        trainer.fit(runtime=InMemoryRuntime)
        ends.append(trainer.learner.weights())
    for name, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][name]), name


def test_evaluating_kept_weights_and_telling_a_game_leave_no_trace_either() -> None:
    trainer = made(PPOTrainer, Remembering, small_ppo(engine="eager"))
    trainer.fit(runtime=InMemoryRuntime)
    calls, drawn = trainer.network.calls, torch.get_rng_state()
    weights = trainer.weights()
    found = [trainer.evaluate_weights(weights) for _ in range(2)]
    assert found[0] == found[1]
    lines = iter(trainer.narrate(weights, 0))
    next(lines)
    assert torch.is_grad_enabled()
    assert trainer.network.calls == calls
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize("config", [small_ppo(), small_self_play()])
def test_kept_weights_are_evaluated_told_and_exported_and_the_trainer_keeps_its_own(
    config: Any, tmp_path: Path
) -> None:
    trainer, other = (ludus.build_trainer(config) for _ in range(2))
    for one in (trainer, other):
        one.fit(runtime=InMemoryRuntime, max_steps=4 if one is other else None)
    before, weights = state_of(trainer), trainer.weights_of({"ppo": other.ppo.state_dict()})
    assert pack(dict(weights)) == pack(other.weights())
    assert pack(dict(weights)) != pack(trainer.weights())
    assert trainer.evaluate_weights(weights) == other.evaluate_weights(weights)
    assert trainer.narrate(weights, 0) == other.narrate(weights, 0)
    for one, name in ((trainer, "trainer"), (other, "other")):
        one.export(weights, tmp_path / name)
    files = [tmp_path / name / "weights.safetensors" for name in ("trainer", "other")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert state_of(trainer) == before


@pytest.mark.parametrize("kind", [Asked, AskedInEvaluation])
def test_what_a_network_drew_in_work_that_was_given_up_is_drawn_again(
    kind: Any, tmp_path: Path
) -> None:
    config = small_ppo(**LONG, engine="eager")
    whole = made(PPOTrainer, Drawing, config)
    whole.fit(root=str(tmp_path / "whole"))
    asked = made(kind, Drawing, config)
    asked.asked_in = 4
    assert asked.fit(root=str(tmp_path / "asked")).status == "interrupted"
    other = made(PPOTrainer, Drawing, config)
    other.fit(root=str(tmp_path / "asked"), resume=True)
    assert torch.equal(other.flat.vectors[0], whole.flat.vectors[0])
    files = [tmp_path / name / "run" / "metrics.jsonl" for name in ("whole", "asked")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert other.inexact_because() == []


@register("player", "grudging")
class Grudging:
    """Plays by how many moves it has made in all its games so far."""

    class Config(StrictConfig):
        """Who plays."""

        kind: Literal["grudging"]
        """Its name."""

    def __init__(self, config: Any, game: Any, role: str) -> None:
        self.num_moves = 0

    def act(self, obs_BO: Tensor, legal_BA: Tensor, generator: torch.Generator) -> Tensor:
        self.num_moves += 1
        nth_B = 1 + self.num_moves % legal_BA.sum(1).clamp(min=1)
        return (legal_BA.cumsum(1) >= nth_B.unsqueeze(1)).int().argmax(1)


def test_what_an_opponent_remembers_does_not_pass_from_one_evaluation_to_the_next() -> None:
    trainer: Any = ludus.build_trainer(
        small_self_play(**{"evaluation.opponent": {"kind": "grudging"}, "evaluation.episodes": 40})
    )
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.evaluate() == trainer.evaluate()


def test_who_is_judged_against_nobody_is_told_which_key_to_set() -> None:
    trainer: Any = ludus.build_trainer(
        small_self_play(**{"evaluate_every_rounds": 0, "evaluation.opponent": None})
    )
    trainer.fit(runtime=InMemoryRuntime)
    with pytest.raises(LudusError, match=r"'evaluation\.opponent' is null: there is nobody"):
        trainer.evaluate_weights(trainer.weights())
    assert "first: the network" in trainer.narrate(trainer.weights(), 0)[0]


def test_a_run_without_an_opponent_is_played_and_its_evaluation_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call = in_process(monkeypatch, capsys)
    alone = {"evaluate_every_rounds": 0, "evaluation.opponent": None}
    PPOTrainer(small_self_play(name="alone", **alone)).fit()
    assert (
        "there is nobody to be judged against"
        in call("eval", "runs/alone", "--model", "last").refusal()
    )
    assert "first: the network" in call("play", "runs/alone", "--model", "last").out
    PPOTrainer(small_self_play(name="judged")).fit()
    assert "'episodes' is 7" in call("eval", "runs/judged", "--episodes", "7").refusal()


class Keeping(nn.Module):
    """Keeps plain things of many kinds, one of them twice and one that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [1]
        self.again = self.seen
        self.source = torch.Generator().manual_seed(0)
        self.lines = (line for line in "ab")
        self.layer = nn.Linear(1, 1)
        self.parts = {"layer": self.layer}


def test_plain_attributes_are_copies_in_the_block_and_their_own_after_it() -> None:
    network = Keeping()
    before, drawn = dict(vars(network)), network.source.get_state()
    with restored(network, what=["attributes"]):
        assert network.again is network.seen
        assert network.parts["layer"] is network.layer
        network.seen.append(2)
        setattr(network, "more", 3)  # noqa: B010
        del network.again
        torch.rand(2, generator=network.source)
    assert dict(vars(network)) == before
    assert network.again is network.seen
    assert network.seen == [1]
    assert torch.equal(network.source.get_state(), drawn)
