"""fused_dqn trains the host and the agent of any game, not of Hironaka's alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import ludus
from ludus import StrictConfig, register
from ludus.config import registry
from ludus.core.errors import ConfigError, LudusError
from ludus.games import DQNTrainer, FusedGame, Moves, Step, make_game
from ludus.games.game import State, check_games
from ludus.testing.games import check_game
from tests.games.dqn.small import Ran, small_dqn


@register("game", "chase")
class Chase(FusedGame):
    """The host runs after the agent on a ring, and may stand still; the agent may not."""

    class Config(StrictConfig):
        kind: Literal["chase"]
        """A pursuit on a ring."""
        places: int
        """How many places the ring has."""

    roles = ("host", "agent")

    def __init__(self, *, places: int) -> None:
        self.places = places

    def actions(self, role: str) -> Moves:
        self.check_role(role)
        return Moves(3 if role == "host" else 2)

    def observation_size(self, role: str) -> int:
        self.check_role(role)
        return 1

    def reset(self, games: int, generator: torch.Generator) -> State:
        check_games(games)
        draws = torch.randint(
            1, self.places, (games,), generator=generator, device=generator.device
        )
        return {"apart": draws}

    def observe(self, state: State, role: str) -> Tensor:
        return state["apart"].float().unsqueeze(1) / self.places

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        way = 1 - actions if role == "host" else 2 * actions - 1
        after = {"apart": (state["apart"] + way) % self.places}
        caught = self.done(after).float()
        return Step(after, torch.stack([caught, -caught], 1))

    def done(self, state: State) -> Tensor:
        return state["apart"] == 0


def test_a_game_of_ones_own_has_a_host_and_an_agent_that_learn() -> None:
    section = {"kind": "chase", "places": 9}
    check_game(lambda: make_game(Chase.Config(**section)))
    ran = Ran(small_dqn(game=section, max_rounds=8))
    found = ran.trainer.evaluate_rho(num_samples=50)
    assert list(found) == [
        "host_vs_agent",
        "host_vs_random",
        "host_vs_choose_first",
        "random_vs_agent",
        "choose_first_vs_agent",
    ]
    weights = ran.trainer.weights()
    metrics = ran.trainer.evaluate_weights(weights, episodes=50)
    pair = [metrics["eval/rho/random_vs_agent"], metrics["eval/rho/choose_first_vs_agent"]]
    assert metrics["eval/agent_rho"] == pytest.approx(sum(pair) / 2)


@pytest.fixture
def changed_chase() -> Iterator[Callable[..., Any]]:
    """Return what makes a trainer of another Chase, with these attributes."""

    class Base(Chase):
        class Config(StrictConfig):  # type: ignore[assignment]
            kind: Literal["changed"]
            """Another pursuit."""
            places: int
            """How many places the ring has."""

    def trainer(**attributes: Any) -> DQNTrainer:
        register("game", "changed")(type("Changed", (Base,), attributes))
        return DQNTrainer(small_dqn(game={"kind": "changed", "places": 9}))

    yield trainer
    registry._REGISTERED["game"].pop("changed", None)


@pytest.mark.parametrize(
    ("opponents", "told"),
    [
        ((), r"opponents\('host'\) of Changed gives \(\); give the kinds"),
        (None, r"opponents\('host'\) of Changed gives None; give the kinds"),
        (("spivakovsky",), "names the player 'spivakovsky', which needs .*; name players without"),
        (("nobody",), "no player kind is named 'nobody'"),
    ],
)
def test_judges_that_cannot_judge_are_told_before_a_run_is_begun(
    opponents: Any, told: str, changed_chase: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = changed_chase(opponents=lambda self, role: opponents)
    with pytest.raises(LudusError, match=told):
        trainer.fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("roles", [None, property(lambda self: ("host", "agent"))])
def test_a_class_that_does_not_name_its_roles_is_told(
    roles: Any, changed_chase: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError, match="whose class does not name its roles; write roles ="):
        changed_chase(roles=roles)


def test_a_judge_from_outside_remembers_nothing_of_earlier_evaluations(
    changed_chase: Callable[..., Any],
) -> None:
    class Moody:
        class Config(StrictConfig):
            kind: Literal["moody"]
            """Plays otherwise the more it has played."""

        def __init__(self, config: Config, game: FusedGame, role: str) -> None:
            self.asked = 0

        def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Tensor:
            self.asked += 1
            return torch.full((len(obs_BO),), int(self.asked > 3))

    register("player", "moody")(Moody)
    try:
        trainer = changed_chase(opponents=lambda self, role: ("moody",))
        first, second = (trainer.evaluate_rho(30) for _ in range(2))
        trainer.set_logger(ludus.Logger({"backends": []}))
        trainer.prepare(max_steps=None)
        evaluation, players = trainer.evaluation, trainer.players
        rhos = [evaluation.rhos(players) for _ in range(2)]
    finally:
        del registry._REGISTERED["player"]["moody"]
    assert first == second
    assert rhos[0] == rhos[1]
