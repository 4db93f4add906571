"""A run of PPO on device games that is asked to pause does so between two turns, or two rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ludus.games.trainers.fused_ppo import PPOTrainer
from tests.games.ppo.small import small_ppo, small_self_play

PAST = {"size": 2, "keep_every_rounds": 2, "share": 0.5}
LONG: dict[str, Any] = {
    "fused": True, "rounds_a_stage": 3, "log_every_rounds": 3, "keep_every_rounds": 0,
    "evaluate_every_rounds": 3, "name": "run",
}  # fmt: skip


class Asked(PPOTrainer):
    """Is asked to pause in the middle of a stage, once."""

    asked_in = -1

    def collect_rollout(self, iteration: int) -> Any:
        if iteration == self.asked_in:
            self.run.interrupted = True
        return super().collect_rollout(iteration)


def test_a_stage_of_several_rounds_is_given_up_between_two_and_done_again(tmp_path: Path) -> None:
    for make in (small_ppo, small_self_play):
        changed = LONG | ({"past_players": PAST} if make is small_self_play else {})
        whole = PPOTrainer(make(**changed))
        whole.fit(root=str(tmp_path / make.__name__ / "whole"))
        asked = Asked(make(**changed))
        asked.asked_in = 4
        root = tmp_path / make.__name__ / "asked"
        assert asked.fit(root=str(root)).status == "interrupted"
        assert asked.run.counters["round"] == 3
        other = PPOTrainer(make(**changed))
        other.fit(root=str(root), resume=True)
        assert torch.equal(other.flat.vectors[0], whole.flat.vectors[0])
        files = [path / "run" / "metrics.jsonl" for path in (root, root.parent / "whole")]
        assert files[0].read_bytes() == files[1].read_bytes()


class AskedInEvaluation(PPOTrainer):
    """Is asked to pause while it is judged."""

    num_calls = 0

    def outputs(self, obs_BO: Any) -> Any:
        self.num_calls += 1
        if self.run.counters["round"] == 3 and self.run.cursor[-1].name == "evaluate":
            self.run.interrupted = True
        return super().outputs(obs_BO)


def test_an_evaluation_is_given_up_between_two_turns_and_done_again(tmp_path: Path) -> None:
    whole = PPOTrainer(small_ppo(**LONG))
    whole.fit(root=str(tmp_path / "whole"))
    asked = AskedInEvaluation(small_ppo(**LONG))
    assert asked.fit(root=str(tmp_path / "asked")).status == "interrupted"
    # Fifteen turns were collected, and one was played of the evaluation.
    assert asked.num_calls == 15 + 1
    other = PPOTrainer(small_ppo(**LONG))
    other.fit(root=str(tmp_path / "asked"), resume=True)
    files = [tmp_path / name / "run" / "metrics.jsonl" for name in ("whole", "asked")]
    assert files[0].read_bytes() == files[1].read_bytes()
    # Whoever asks afterwards gets an answer.
    assert asked.evaluate()["eval/return_mean"] > 0
