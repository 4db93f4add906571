"""What the rates of a run of PPO on device games count, and when they begin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.games import speed
from ludus.games.trainers.fused_ppo import PPOTrainer
from tests.games.ppo.small import small_ppo


class Hands:
    """Stands for the clock: it moves when a callback or an evaluation says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(speed.time, "monotonic", lambda: self.now)


class Slow(PPOTrainer):
    """An evaluation takes a thousand seconds, a round two."""

    hands: Hands

    def evaluate(self) -> dict[str, float]:
        self.hands.now += 1000.0
        return super().evaluate()

    def collect_rollout(self, iteration: int) -> Any:
        self.hands.now += 2.0
        return super().collect_rollout(iteration)


def timing(root: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (root / "run" / "timing.jsonl").read_text().splitlines()]


def test_evaluations_are_not_in_the_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Slow.hands = Hands(monkeypatch)
    Slow(small_ppo(name="run")).fit(root=str(tmp_path))
    lines = timing(tmp_path)
    assert [line["game_steps_per_sec"] for line in lines] == [30 / 2.0] * 6
    assert [line["training_seconds"] for line in lines] == [2.0 * (1 + nth) for nth in range(6)]


def test_after_a_resume_the_rates_count_what_this_process_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Slow.hands = Hands(monkeypatch)
    Slow(small_ppo(name="run", max_rounds=4)).fit(root=str(tmp_path))
    Slow.hands.now += 5000.0
    Slow(small_ppo(name="run", max_rounds=6)).fit(root=str(tmp_path), resume=True)
    lines = timing(tmp_path)
    assert [line["game_steps_per_sec"] for line in lines] == [30 / 2.0] * 6
    assert lines[4]["training_seconds"] == 2.0
