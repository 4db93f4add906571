"""A host and an agent learn: rho in games of no training, against players that stay what they are."""

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.games import DQNTrainer, playoffs

HOSTS = {"random": {"kind": "random"}, "all": {"kind": "all_coordinates"}}
AGENTS = {"random": {"kind": "random"}, "first": {"kind": "choose_first"}}


def met(trainer: DQNTrainer, *, games: int) -> Any:
    """Return rho of every pair, the trained host and agent among them."""
    hosts = {"trained": trainer.players["host"], **HOSTS}
    agents = {"trained": trainer.players["agent"], **AGENTS}
    with trainer.inference_mode():
        game = trainer.fused_game
        return playoffs(game, hosts, agents, games=games, max_steps=50, seed=99).rhos


def trained(**changes: object) -> DQNTrainer:
    config = ludus.example("fused_dqn")
    off = {"evaluate_every_rounds": 0, "settings.display": "none", "settings.loggers": []}
    trainer = DQNTrainer(config.replace(**off, **changes))
    trainer.fit(name="learning")
    return trainer


@pytest.mark.covers("001-M6")
def test_in_seconds_the_host_wins_sooner_and_the_agent_holds_out_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = {"net_arch": [64, 64], "batch_size": 128, "rollout_size": 50, "tau": 0.02}
    trainer = trained(
        **{"game.max_num_points": 10, "max_rounds": 400, "log_every_rounds": 0},
        **{f"{role}.{key}": value for role in ("host", "agent") for key, value in small.items()},
        **{"agent.sync_target_every_rounds": 1},
    )
    rhos = met(trainer, games=1000)
    assert rhos["trained", "random"] > 1.15 * rhos["random", "random"]
    assert rhos["trained", "first"] > 1.15 * rhos["random", "first"]
    assert rhos["random", "trained"] < 0.5 * rhos["random", "random"]


@pytest.mark.slow
def test_the_shipped_host_beats_all_coordinates_and_the_shipped_agent_holds_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rhos = met(trained(), games=4000)
    assert rhos["trained", "random"] > rhos["all", "random"] + 0.01
    assert rhos["trained", "first"] > 1.8 * rhos["random", "first"]
    assert rhos["random", "trained"] < 0.2 * rhos["random", "random"]
