"""What an evaluation of self-play counts, from which games, and what the log says of the value's error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ludus
from ludus.core.runtime import InMemoryRuntime
from ludus.games.trainers.fused_ppo import PPOTrainer
from tests.games.ppo.small import small_ppo, small_self_play


def prepared(config: Any) -> PPOTrainer:
    trainer = PPOTrainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer


def test_games_that_were_cut_off_are_no_draws() -> None:
    rates = ("win_rate", "draw_rate", "loss_rate", "cut_off_rate")
    cut = prepared(small_self_play(**{"evaluation.max_turns": 2})).evaluate()
    assert [cut[f"eval/{rate}"] for rate in rates] == [0, 0, 0, 1]
    config = small_self_play(**{"evaluation.max_turns": 9, "evaluation.episodes": 200})
    whole = prepared(config).evaluate()
    assert whole["eval/cut_off_rate"] == 0
    assert whole["eval/draw_rate"] > 0
    assert sum(whole[f"eval/{rate}"] for rate in rates) == pytest.approx(1)
    assert prepared(small_ppo(**{"evaluation.max_turns": 1})).evaluate()["eval/cut_off_rate"] == 1


def test_each_role_is_judged_in_games_with_draws_of_their_own() -> None:
    trainer = prepared(small_self_play(**{"evaluation.episodes": 40}))
    begun = []
    of_name = trainer.evaluation.generator

    def noted(name: str) -> torch.Generator:
        source = of_name(name)
        begun.append(source.initial_seed())
        return source

    trainer.evaluation.generator = noted  # type: ignore[method-assign]
    trainer.evaluate()
    first, second = begun
    assert first != second
    trainer.evaluate()
    assert begun[2:] == [first, second], "they are the same at every evaluation"


def test_the_value_loss_of_the_log_is_the_mean_squared_error() -> None:
    seen = []

    class Watched(PPOTrainer):
        def train_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            with torch.no_grad():
                obs, _, _, advantages, values = batch.split(self.ppo._sizes, 1)[:5]
                errors = self.network(obs)[1] - (advantages + values).squeeze(1)
                seen.append(float(errors.square().mean()))
            super().train_step(batch, batch_idx)

    changed = {"evaluate_every_rounds": 0, "fused": False, "rounds_a_stage": 1, "num_epochs": 1}
    trainer = Watched(small_ppo(value_clip=None, max_rounds=1, keep_every_rounds=0, **changed))
    written: list[Any] = []

    class Back:
        def write(self, record: Any) -> None:
            written.append(record.scalars)

        def close(self) -> None: ...

    log = ludus.Logger({"backends": []})
    log.attach(Back())
    trainer.set_logger(log)
    trainer.fit(runtime=InMemoryRuntime)
    assert written[0]["train/value_loss"] == pytest.approx(sum(seen) / len(seen), rel=1e-4)
