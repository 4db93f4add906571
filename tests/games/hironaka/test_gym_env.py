"""Hironaka's game in gymnasium: envs that pass its own check, and play by the rules."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import ludus.games
from ludus.core.errors import ConfigError, LudusError
from ludus.games.hironaka.gym_env import HironakaAgentEnv, HironakaHostEnv
from ludus.games.hironaka.host_actions import host_action_table
from ludus.games.rules.hironaka import Hironaka

SMALL: dict[str, Any] = {"dimension": 2, "max_num_points": 4, "max_value": 5}


@pytest.mark.covers("001-S13")
@pytest.mark.parametrize("env", ["HironakaHostEnv", "HironakaAgentEnv"])
def test_the_envs_pass_gymnasiums_own_check(env: str) -> None:
    check_env(getattr(ludus.games, env)(), skip_render_check=True)
    check_env(
        getattr(ludus.games, env)(max_num_points=5, polytope="vertices"), skip_render_check=True
    )


@pytest.mark.filterwarnings("ignore:.*maximum value is infinity.*")
def test_the_envs_pass_it_with_points_that_are_not_rescaled() -> None:
    for env in (HironakaHostEnv, HironakaAgentEnv):
        check_env(env(scale_observation=False), skip_render_check=True)


def test_the_host_plays_the_game_of_the_rules() -> None:
    env = HironakaHostEnv({"kind": "choose_last"}, scale_observation=False, **SMALL)
    game = Hironaka(scale_observation=False, **SMALL)
    ends = 0
    for seed in range(20):
        points, info = env.reset(seed=seed)
        assert info["action_mask"].tolist() == [1]
        state = game.start(torch.from_numpy(points).unsqueeze(0))
        assert not game.over(state)
        for _ in range(30):
            points, reward, is_done, is_cut, _ = env.step(0)
            state, _ = game.step(state, "host", torch.tensor([0]))
            state, rewards = game.step(state, "agent", torch.tensor([1]))
            assert np.array_equal(points, state["points"][0].numpy())
            assert (reward, is_done, is_cut) == (rewards[0, 0], bool(game.over(state)), False)
            if is_done:
                ends += 1
                break
    assert ends == 20


def test_the_agent_sees_what_the_host_named_and_loses_when_the_game_ends() -> None:
    host = {"kind": "zeillinger", "lexicographic": False}
    env = HironakaAgentEnv(host, max_num_points=5)
    for seed in range(5):
        seen, info = env.reset(seed=seed)
        is_done, total = False, 0.0
        while not is_done:
            assert seen["coords"].sum() == 2
            assert info["action_mask"].tolist() == seen["coords"].tolist()
            seen, reward, is_done, _, info = env.step(int(seen["coords"].argmax()))
            total += reward
        assert total == -1.0
        assert (seen["points"][1:] == -1).all()


def test_an_illegal_pick_loses_at_once() -> None:
    env = HironakaAgentEnv({"kind": "choose_first"})
    env.reset(seed=0)
    _, reward, is_done, _, info = env.step(2)
    assert (reward, is_done, info["is_illegal"]) == (-1.0, True, True)


@pytest.mark.covers("001-S13")
def test_a_reset_starts_from_the_points_that_it_is_given() -> None:
    start = [[4, 0], [1, 1], [0, 4]]
    host = HironakaHostEnv(scale_observation=False, **SMALL)
    points, _ = host.reset(seed=0, options={"points": start})
    assert points.tolist() == [[4, 0], [1, 1], [0, 4], [-1, -1]]
    agent = HironakaAgentEnv({"kind": "all_coordinates"}, **SMALL)
    seen, _ = agent.reset(options={"points": torch.tensor(start)})
    assert seen["points"].tolist() == [[1, 0], [0.25, 0.25], [0, 1], [-1, -1]]
    assert seen["coords"].tolist() == [1, 1]
    # Reset without them draws again.
    assert host.reset(seed=0)[0].tolist() != points.tolist()


def test_what_is_shown_is_scaled_and_the_game_is_that_of_whole_numbers() -> None:
    env = HironakaHostEnv({"kind": "choose_first"}, dimension=2, max_num_points=3)
    seen, _ = env.reset(options={"points": [[7, 0], [3, 1], [0, 5]]})
    while True:
        assert seen.max() == 1.0
        whole = env._state["points"]
        assert torch.equal(whole, whole.round())
        seen, _, is_done, _, _ = env.step(0)
        if is_done:
            break


def test_a_long_game_is_truncated() -> None:
    env = HironakaAgentEnv({"kind": "choose_first"}, max_steps=3, max_value=1000)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_a_game_whose_points_grow_too_large_is_truncated() -> None:
    class Alternates:
        picked = 0

        def act(self, obs_BO: Any, legal_BA: Any, generator: torch.Generator) -> torch.Tensor:
            self.picked = 1 - self.picked
            return torch.tensor([self.picked])

    env = HironakaHostEnv(Alternates(), scale_observation=False, max_steps=1000)
    lengths = set()
    for seed in range(6):
        env.reset(seed=seed)
        for number in range(1000):
            points, _, is_done, is_cut, _ = env.step(0)
            assert np.isfinite(points).all()
            if is_done or is_cut:
                lengths.add((is_cut, 100 < number < 400))
                break
    assert lengths == {(True, True), (False, False)}


def test_a_game_is_drawn_in_words() -> None:
    env = HironakaAgentEnv({"kind": "choose_first"}, render_mode="ansi", **SMALL)
    env.reset(seed=0)
    assert "the host names 0, 1" in str(env.render())
    assert HironakaHostEnv().render() is None


def test_the_same_seed_gives_the_same_games_one_after_another() -> None:
    def games(seed: int) -> list[Any]:
        env = HironakaHostEnv()
        first = env.reset(seed=seed)[0]
        return [first.tolist(), env.step(0)[0].tolist(), env.reset()[0].tolist()]

    assert games(3) == games(3)
    assert games(3) != games(4)
    assert games(3)[0] != games(3)[2]


def begun() -> HironakaHostEnv:
    env = HironakaHostEnv()
    env.reset(seed=0)
    return env


class Wrong:
    """A host that names what there is not."""

    def act(self, obs_BO: torch.Tensor, legal_BA: Any, generator: torch.Generator) -> torch.Tensor:
        return torch.tensor([7])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: HironakaHostEnv({"kind": "zeilinger"}), "no player kind is named 'zeilinger'"),
        (lambda: HironakaHostEnv({"kind": "all_coordinates"}), "plays the host of Hironaka's game"),
        (lambda: HironakaHostEnv(7), "the agent is a int; give a player"),
        (lambda: HironakaHostEnv(dimension=1), "'dimension' is 1"),
        (lambda: HironakaHostEnv(dimension=40), r"'dimension' is 40; .* so use 16 or less"),
        (lambda: host_action_table(17), "'dimension' is 17; the host would have 2"),
        (lambda: begun().step(None), "step was given None; give the number of a move"),
        (lambda: HironakaHostEnv(render_mode="ansi").render(), "render was called before reset"),
        (lambda: HironakaHostEnv(max_steps=0), "'max_steps' is 0"),
        (lambda: HironakaHostEnv(render_mode="human"), "the render mode 'human' is not known"),
        (lambda: HironakaHostEnv().reset(options={"start": 1}), "the option 'start', which is not"),
        (lambda: HironakaHostEnv().reset(options={"points": 3}), "'points' is 3; give a list of"),
        (
            lambda: HironakaHostEnv().reset(options={"points": [[1, 2], [2, 1]]}),
            "'points' has a point of 2 coordinates; 'dimension' is 3",
        ),
        (
            lambda: HironakaHostEnv(max_num_points=2).reset(options={"points": [[1, 2, 3]] * 3}),
            "'points' has 3 points; 'max_num_points' is 2, so raise it",
        ),
        (
            lambda: HironakaHostEnv().reset(options={"points": [[1, 2, 3], [1, 1, 1]]}),
            "'points' is a game that has ended",
        ),
        (
            lambda: HironakaHostEnv().reset(options={"points": [[1, -2, 3], [1, 1, 1]]}),
            "give finite coordinates of 0 or more",
        ),
        (lambda: HironakaHostEnv().step(0), "step was called before reset"),
        (lambda: HironakaAgentEnv(Wrong()).reset(), "the host of Hironaka played 7 in game 0"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(call: Any, told: str) -> None:
    with pytest.raises((LudusError, ConfigError), match=told):
        call()


def test_starts_that_have_all_ended_are_an_error() -> None:
    env = HironakaHostEnv(dimension=2, max_num_points=2, max_value=1)
    env.game._begun = lambda points: {  # type: ignore[method-assign]
        "points": torch.full_like(points, -1.0),
        "coords": points[:, 0] * 0,
    }
    with pytest.raises(LudusError, match="all of 1000 random starts have ended"):
        env.reset(seed=0)


def test_a_start_is_found_where_most_have_ended() -> None:
    env = HironakaHostEnv(dimension=2, max_num_points=2, max_value=1)
    for seed in range(20):  # one of eight starts goes on, so that the first few often do not
        points, _ = env.reset(seed=seed)
        assert sorted(points.tolist()) == [[0, 1], [1, 0]]


def test_without_gymnasium_the_remedy_is_told() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "import ludus.games\n"
        "ludus.games.HironakaHostEnv\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert "need gymnasium; install it with: pip install 'ludus[rl]'" in told
