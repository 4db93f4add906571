"""Whoever plays cannot change the game by what it does to the tensors that it is shown."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import ConfigError, LudusError
from ludus.games import DQNTrainer, PPOTrainer, playoffs
from ludus.games.dqn.players import ValuePlayer
from ludus.games.roll_out import roll_out
from ludus.games.rules.hironaka import Hironaka
from tests.games.dqn.small import prepared, small_dqn
from tests.games.ppo.small import small_ppo

GAME = Hironaka(dimension=3, max_num_points=6, max_value=9, scale_observation=True)
FIRST = {"kind": "choose_first"}
pytestmark = pytest.mark.covers("001-D5")


class Writes(nn.Module):
    """Turns the padding of -1 into points at the origin, there where it stands."""

    def __init__(self, *, in_train_mode: bool = True, in_eval_mode: bool = True) -> None:
        super().__init__()
        self.layer, self.when = nn.Linear(18, 4), {True: in_train_mode, False: in_eval_mode}

    def forward(self, obs: Tensor) -> Tensor:
        values: Tensor = self.layer(obs.clamp_(min=0) if self.when[self.training] else obs)
        return values


class WritingHost:
    """Names the first two coordinates, and spoils what it was shown."""

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        obs_BO.numpy()[:] = 0
        return torch.zeros(len(obs_BO), dtype=torch.int64)


class WritingAgent:
    """Picks the first legal coordinate, and lets all be legal afterwards."""

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        assert legal_BA is not None
        first = legal_BA.int().argmax(1)
        obs_BO.zero_()
        legal_BA.fill_(True)
        return first


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(18, 4)),
        Writes(in_train_mode=False),
        Writes(in_eval_mode=False),
    ],
)
def test_a_network_that_writes_into_what_it_sees_is_refused(net: nn.Module) -> None:
    with pytest.raises(ConfigError, match="writes into the observations it is given"):
        _ = DQNTrainer(small_dqn(), host_net=net).learners
    trainer = DQNTrainer(small_dqn())
    with pytest.raises(ConfigError, match=r"host_net, a .* writes into the observations"):
        trainer.replace_nets(host_net=net)


def test_a_network_may_work_in_place_on_what_is_its_own() -> None:
    net = nn.Sequential(nn.Linear(18, 8), nn.ReLU(inplace=True), nn.Linear(8, 4))
    assert prepared(host_net=net).evaluate_rho()


def test_a_network_for_ppo_that_writes_into_what_it_sees_is_refused() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy, self.value = nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, None]:
            obs = obs.mul_(0.5)
            return self.policy(obs), self.value(obs).squeeze(1), None

    trainer = PPOTrainer(small_ppo())
    trainer.set_model(Halves())
    with pytest.raises(ConfigError, match="the network Halves writes into the observations"):
        trainer.fit()


def test_a_network_that_begins_to_write_later_is_stopped() -> None:
    trainer = prepared(host_net=nn.Sequential(nn.Identity(), nn.Linear(18, 4)))
    trainer.host_net[0] = nn.ReLU(inplace=True)
    with pytest.raises(LudusError, match="the host of Hironaka writes into what it is given"):
        trainer._gather("host", 5, torch.Generator(), 0.1)
    with pytest.raises(LudusError, match="the host of Hironaka writes into what it is given"):
        trainer.evaluate_rho()


def test_games_with_a_player_that_writes_are_those_of_one_that_does_not() -> None:
    class Quiet:
        def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Tensor:
            return torch.zeros(len(obs_BO), dtype=torch.int64)

    def found(host: Any, agent: Any) -> Any:
        draws = torch.Generator().manual_seed(3)
        players = {"host": host, "agent": agent}
        return roll_out(GAME, players, "agent", games=30, turns=4, generator=draws)

    honest = ValuePlayer(nn.Linear(21, 3))
    quiet, loud = found(Quiet(), honest), found(WritingHost(), honest)
    for one, other in zip(quiet, loud, strict=True):
        assert torch.equal(one, other)
    assert (found(Quiet(), WritingAgent()).obs == -1).any(), "padding is remembered as it was"


def test_a_player_that_writes_spoils_the_playoffs_of_no_other() -> None:
    def rhos(hosts: Any, agents: Any) -> Any:
        return playoffs(GAME, hosts, agents, games=40, max_steps=8).rhos

    hosts = {"all": {"kind": "all_coordinates"}, "random": {"kind": "random"}}
    alone = rhos(hosts, {"first": FIRST})
    met = rhos({"bad": WritingHost(), **hosts}, {"bad": WritingAgent(), "first": FIRST})
    assert {pair: met[pair] for pair in alone} == alone


def test_a_reward_function_that_writes_into_what_was_seen_is_stopped() -> None:
    def spoiled(role: str, obs: Any, next_obs: Any, dones: Tensor) -> Tensor:
        points = obs["points"] if role == "agent" else obs
        points.clamp_(min=0)
        return dones.float()

    with pytest.raises(LudusError, match="the reward function writes into what it is given"):
        prepared(reward_func=spoiled)
