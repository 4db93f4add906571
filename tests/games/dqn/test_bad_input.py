"""What a user may get wrong in a run of a host and an agent is one sentence, and nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ludus.config import registry
from ludus.core.errors import ConfigError, LudusError
from ludus.games import DQNTrainer
from tests.command_line import Ludus, in_process
from tests.games.dqn.small import small_dqn

PLUGIN = "tests.games.dqn.wild_plugin"


@pytest.fixture(autouse=True)
def plugin_is_forgotten() -> Iterator[None]:
    """Let no other test find the player and the game of the plugin."""
    registry.load_plugin(PLUGIN)
    yield
    registry.loaded_plugins.remove(PLUGIN)
    for category, kind in (("player", "wild"), ("game", "far"), ("game", "pushing")):
        del registry._REGISTERED[category][kind]
    del sys.modules[PLUGIN]


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


def told(call: Ludus, *words: str, **changed: Any) -> str:
    """Return the sentence with which `ludus train` refuses such a file."""
    Path("run.yaml").write_text(small_dqn(**changed).to_yaml())
    found = call("train", "run.yaml", *words)
    assert (found.code, "Traceback" in found.err) == (1, False), found.err
    sentence = found.err.strip().splitlines()[-1]
    assert sentence.startswith("ludus: ")
    return sentence


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["agent=null"], "the agent is neither trained nor given: 'agent' and 'opponent' are null"),
        (["agent=null", "opponent=given"], "nobody gave it; DQNTrainer(config, agent_net=...)"),
        (
            ["agent=null", "opponent={kind: zeillinger, lexicographic: false}"],
            "the player 'zeillinger' plays the host of Hironaka's game, not the agent",
        ),
        (
            ["agent=null", "opponent={kind: zeillinger}"],
            "'opponent.lexicographic' is missing; it is: Break ties by",
        ),
        (["agent=null", "opponent={kind: randm}"], "no player kind is named 'randm'. Did you mean"),
        (["host.rollout_size=0"], "'host.rollout_size' must be greater than or equal to 1"),
        (["evaluation.episodes=0"], "'evaluation.episodes' must be greater than or equal to 1"),
        (["game.dimension=1"], "'game.dimension' must be greater than or equal to 2 (found 1)"),
        (["game.max_num_points=1"], "'game.max_num_points' must be greater than or equal to 2"),
        (["host.net_arch=[b]"], "'net_arch.0' is b, batch norm of the layer before it"),
        (["game={kind: tic_tac_toe}"], "fused_dqn trains a host and an agent"),
    ],
)
def test_a_config_that_cannot_be_trained_is_refused_and_no_run_is_begun(
    call: Ludus, words: list[str], problem: str
) -> None:
    assert problem in told(call, *words)
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_a_start_where_every_game_has_ended_is_told_before_a_run_is_begun(call: Ludus) -> None:
    # Of two points of {0, 1}^2 one is often below the other, and the game has ended.
    few = {"game.max_num_points": 2, "game.dimension": 2, "game.max_value": 1}
    sentences = []
    for seed in range(4):
        config = small_dqn(seed=seed, name=f"run{seed}", **few, **{"evaluation.episodes": 1})
        Path("run.yaml").write_text(config.to_yaml())
        found = call("train", "run.yaml", "max_rounds=1", "log_every_rounds=0")
        if found.code:
            sentences.append(found.err.strip().splitlines()[-1])
            assert not Path(f"runs/run{seed}").exists()
    assert "all 1 games of an evaluation have ended before they begin; raise" in str(sentences)
    assert "all 20 first games of the host had ended before they began; raise host" in str(
        sentences
    )


def seat_of(answer: str, *, is_opponent: bool) -> dict[str, Any]:
    """Return what of the config puts the player of the plugin at the table."""
    player = {"kind": "wild", "answer": answer}
    if is_opponent:
        return {"agent": None, "opponent": player}
    return {"host.sparring": [{"player": player, "share": 0.5}]}


@pytest.mark.parametrize("is_opponent", [True, False])
def test_illegal_moves_of_a_players_own_are_refused_by_game_role_and_index(
    call: Ludus, is_opponent: bool
) -> None:
    words = "--plugin", PLUGIN
    sentence = told(call, *words, **seat_of("last", is_opponent=is_opponent))
    assert "the agent of Hironaka played 2 in game" in sentence
    assert (
        "which is illegal there; choose among what game.legal(observation, role) says" in sentence
    )
    sentence = told(call, *words, "name=listed", **seat_of("list", is_opponent=is_opponent))
    assert "the agent of Hironaka gave a list; give a tensor of" in sentence


@pytest.mark.parametrize("is_opponent", [True, False])
def test_a_player_of_ones_own_may_say_anything_of_games_that_are_over_and_is_watched(
    call: Ludus, is_opponent: bool
) -> None:
    config = small_dqn(**seat_of("first", is_opponent=is_opponent))
    Path("run.yaml").write_text(config.to_yaml())
    found = call("train", "run.yaml", "--plugin", PLUGIN)
    assert found.code == 0, found.err
    (manifest,) = Path("runs").glob("*/checkpoints/*/manifest.json")
    assert "Wild changes asked as it runs, which no checkpoint holds" in manifest.read_text()


def test_points_that_are_not_finite_are_told(call: Ludus) -> None:
    assert "finite" in told(call, "--plugin", PLUGIN, game={"kind": "far"})


def test_a_game_whose_actions_are_numbers_is_refused_and_no_run_is_begun(call: Ludus) -> None:
    sentence = told(call, "--plugin", PLUGIN, game={"kind": "pushing"})
    assert "chooses among moves, and the host of Pushing gives numbers between bounds" in sentence
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


@pytest.mark.parametrize("outputs", [3, 5])
def test_a_network_of_another_size_is_refused_and_no_run_is_begun(
    outputs: int, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"the host has 4 actions, so it must give \(2, 4\)"):
        DQNTrainer(small_dqn(), host_net=nn.Linear(18, outputs)).fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


class Late:
    """Plays well, and after so many moves does not."""

    def __init__(self, left: int) -> None:
        self.left = left

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...

    def act(self, obs_BO: Any, legal_BA: Any, generator: torch.Generator) -> Any:
        self.left -= 1
        return legal_BA.int().argmax(1) if self.left >= 0 else [0]


def test_a_run_that_ended_in_an_error_goes_on_when_that_is_mended(tmp_path: Path) -> None:
    changed = {"settings.checkpoint.every_opt_steps": 1}
    config = small_dqn(agent=None, opponent="given", **changed)
    with pytest.raises(LudusError, match="the agent of Hironaka gave a list"):
        DQNTrainer(config, agent_net=Late(10)).fit(root=str(tmp_path), name="run")
    mended, whole = (DQNTrainer(config, agent_net=Late(1000)) for _ in range(2))
    assert mended.fit(root=str(tmp_path), name="run", resume=True).counters["round"] == 6
    whole.fit(root=str(tmp_path), name="whole")
    for name, weight in whole.weights().items():
        assert torch.equal(weight, mended.weights()[name]), name


def test_roles_whose_networks_share_parameters_are_refused() -> None:
    # Of dimension 3 host and agent see 18 and 21 numbers: what they can share is an inner layer.
    trunk = nn.Linear(8, 8)
    host = nn.Sequential(nn.Linear(18, 8), trunk, nn.Linear(8, 4))
    agent = nn.Sequential(nn.Linear(21, 8), trunk, nn.Linear(8, 3))
    with pytest.raises(ConfigError, match="host_net and agent_net share parameters"):
        _ = DQNTrainer(small_dqn(), host_net=host, agent_net=agent).learners
    frozen = small_dqn(agent=None, opponent="given")
    with pytest.raises(ConfigError, match="host_net and agent_net share parameters"):
        _ = DQNTrainer(frozen, host_net=host, agent_net=agent).learners
    trainer = DQNTrainer(small_dqn(), host_net=host)
    with pytest.raises(ConfigError, match="host_net and agent_net share parameters"):
        trainer.replace_nets(agent_net=agent)
    with pytest.raises(ConfigError, match="host_net and agent_net share parameters"):
        trainer.replace_nets(host_net=host, agent_net=agent)
    trainer.replace_nets(agent_net=agent, host_net=nn.Linear(18, 4))  # the other one leaves


@pytest.mark.parametrize("role", ["host", "agent"])
def test_a_network_without_a_size_yet_is_told_how_to_get_one(role: str) -> None:
    lazy = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 4 if role == "host" else 3))
    with pytest.raises(ConfigError, match=rf"{role}_net.* has layers without a size yet; call it"):
        _ = DQNTrainer(small_dqn(), **{f"{role}_net": lazy}).learners
