"""Games played on by networks: choices, chunks, precision, and what happens to finished games."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ludus.core.errors import ConfigError
from ludus.games.choose import best, choose
from ludus.games.dqn import rollout_graph
from ludus.games.dqn.inference import Inference, Precision, linear_chain, matmuls_in
from ludus.games.dqn.rollout_graph import RolloutGraph
from ludus.games.game import State
from ludus.games.networks import make_net
from ludus.games.rules.hironaka import Hironaka


def game() -> Hironaka:
    return Hironaka(dimension=3, max_num_points=8, max_value=9, scale_observation=True)


def nets(*arch: int | str, seed: int = 0) -> dict[str, nn.Module]:
    torch.manual_seed(seed)
    layers = arch or (16, 16)
    made = {"host": make_net(layers, 24, 4), "agent": make_net(layers, 27, 3)}
    return {role: net.eval() for role, net in made.items()}


def rollout(
    players: dict[str, nn.Module],
    *,
    restart: bool = False,
    precision: Precision = "float32",
    rounds: int = 1,
    games: int = 50,
) -> RolloutGraph:
    return RolloutGraph(
        game(),
        players,
        games=games,
        generator=torch.Generator().manual_seed(5),
        restart=restart,
        precision=precision,
        rounds=rounds,
    )


def copied(state: State) -> State:
    return {name: value.clone() for name, value in state.items()}


def greedy_round(own: Hironaka, players: dict[str, nn.Module], state: State) -> State:
    """Play a round the slow, obvious way: the best legal move of each game by itself."""
    for role in own.roles:
        obs = own.observe(state, role)
        actions = []
        for row in obs:
            values = players[role](row.unsqueeze(0))[0].tolist()
            legal = range(4) if role == "host" else [c for c in range(3) if row[24 + c] > 0]
            actions.append(max(legal, key=lambda move: values[move], default=0))
        state = own.step(state, role, torch.tensor(actions)).state
    return state


@torch.no_grad()
def test_without_exploration_the_best_legal_move_is_played() -> None:
    players = nets()
    own = rollout(players, rounds=2)
    wanted = copied(own.state)
    for _ in range(2):
        wanted = greedy_round(own.game, players, wanted)  # type: ignore[arg-type]
    own.advance()
    assert torch.equal(own.state["points"], wanted["points"])


def test_the_present_weights_play_however_they_change_in_between() -> None:
    players, other = nets(seed=0), nets(seed=1)
    own, fresh = rollout(players), rollout(other)
    for role in players:
        players[role].load_state_dict(other[role].state_dict())
    own.advance()
    fresh.advance()
    assert torch.equal(own.state["points"], fresh.state["points"])


def test_games_are_played_alike_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rollout(nets())
    monkeypatch.setitem(rollout_graph.CHUNKS, "cpu", 7)
    parts = rollout(nets())
    for name, value in whole.state.items():
        parts.state[name].copy_(value)
    whole.advance()
    parts.advance()
    assert torch.equal(whole.state["points"], parts.state["points"])


def test_finished_games_stay_as_they_are_without_restart() -> None:
    own = rollout(nets(), rounds=30)
    own.rates["host"].fill_(1.0)
    own.advance()
    over, before = own.game.over(own.state), copied(own.state)
    assert over.any()
    own.advance()
    assert torch.equal(own.state["points"][over], before["points"][over])


def test_finished_games_start_anew_with_restart() -> None:
    own = rollout(nets(), restart=True, games=400)
    own.rates["host"].fill_(1.0)
    starts = game().over(game().reset(4000, torch.Generator().manual_seed(0))).float().mean()
    for _ in range(30):
        own.advance()
    assert own.game.over(own.state).float().mean() < starts + 0.1
    assert len(own.state["points"].unique(dim=0)) > 300


def test_rollouts_of_one_seed_are_the_same_and_go_on_from_the_state_of_the_generator() -> None:
    one, other = rollout(nets(), restart=True), rollout(nets(), restart=True)
    for each in (one, other):
        each.rates["agent"].fill_(0.5)
        each.advance()
    assert torch.equal(one.state["points"], other.state["points"])
    held = one.generator.get_state()
    one.advance()
    other.generator.set_state(held)
    other.advance()
    assert torch.equal(one.state["points"], other.state["points"])


def test_each_role_explores_by_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def recorded(values: Tensor, legal: Tensor | None, *, rate: Tensor, draws_B2: Tensor) -> Tensor:
        seen.append(draws_B2)
        return choose(values, legal, rate=rate, draws_B2=draws_B2)

    monkeypatch.setattr(rollout_graph, "choose", recorded)
    rollout(nets()).advance()
    assert len(seen) == 2
    assert not (seen[0] == seen[1]).any()


DRAWS = torch.tensor([[0.0, 0.0], [0.0, 0.4], [0.0, 0.99999994], [0.7, 0.0]])
VALUES = torch.tensor([[1.0, 5.0, 3.0, 4.0]]).expand(4, 4)
LEGAL = torch.tensor([[True, False, True, True]]).expand(4, 4)


def test_exploration_draws_legal_moves_alone_and_the_rest_take_the_best_legal_one() -> None:
    chosen = choose(VALUES, LEGAL, rate=torch.tensor(0.5), draws_B2=DRAWS)
    assert chosen.tolist() == [0, 2, 3, 3]
    assert choose(VALUES, None, rate=torch.tensor(0.5), draws_B2=DRAWS).tolist() == [0, 1, 3, 1]
    assert (
        choose(VALUES, ~LEGAL & LEGAL, rate=torch.tensor(0.5), draws_B2=DRAWS).tolist() == [0] * 4
    )


def test_the_best_move_is_the_first_legal_one_of_greatest_value() -> None:
    assert best(VALUES, LEGAL).tolist() == [3] * 4
    assert best(VALUES, None).tolist() == [1] * 4
    assert best(VALUES, ~LEGAL & LEGAL).tolist() == [0] * 4
    assert best(torch.zeros(2, 3), torch.tensor([[False, True, True]] * 2)).tolist() == [1, 1]


def test_every_legal_move_is_drawn_as_often() -> None:
    draws = torch.rand(30_000, 2, generator=torch.Generator().manual_seed(0))
    legal = torch.tensor([[True, False, True, True]]).expand(30_000, 4)
    chosen = choose(torch.zeros(30_000, 4), legal, rate=torch.tensor(1.0), draws_B2=draws)
    shares = torch.bincount(chosen, minlength=4) / 30_000
    assert torch.allclose(shares, torch.tensor([1 / 3, 0, 1 / 3, 1 / 3]), atol=0.01)


@pytest.mark.parametrize("arch", [(16, 16), (16, "b", 16)])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_network_gives_its_own_values_in_any_precision(
    arch: tuple[int | str, ...], precision: Precision
) -> None:
    net = nets(*arch)["agent"]
    seen = torch.rand(9, 27, generator=torch.Generator().manual_seed(0))
    own = Inference(net, inputs=27, precision=precision)
    for held in (*net.parameters(), *net.buffers()):
        held.data = held.data * 0.9 if held.is_floating_point() else held.data
    own.refresh()
    padded = torch.nn.functional.pad(seen, (0, own.width - 27)).to(own.dtype)
    values: Tensor = own(padded).float()
    with torch.no_grad():
        wanted = net(seen)
    assert torch.allclose(values, wanted, atol=1e-6 if precision == "float32" else 2e-2)


def test_a_chain_is_linear_layers_and_relus_that_nobody_listens_to() -> None:
    net = make_net([8, 8], 4, 2)
    found = linear_chain(net)
    assert found is not None
    assert [has_relu for _, has_relu in found] == [True, True, False]
    assert linear_chain(make_net([8, "b"], 4, 2)) is None
    assert linear_chain(nn.Sequential(nn.ReLU(), nn.Linear(4, 2))) is None
    net[0].register_forward_hook(lambda *given: None)
    assert linear_chain(net) is None


def test_the_precision_of_other_products_is_as_it_was_after() -> None:
    before = torch.get_float32_matmul_precision()
    with matmuls_in("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_a_network_that_does_not_fit_its_role_is_refused() -> None:
    players = nets()
    with pytest.raises(ConfigError, match="the agent has 3 actions, so it must give"):
        rollout({**players, "agent": nn.Linear(27, 4)})
    with pytest.raises(
        ConfigError, match="nobody plays the agent of Hironaka; give nets\\['agent'\\]"
    ):
        rollout({"host": players["host"]})
    with pytest.raises(ConfigError, match="a batch of 0 games"):
        rollout(players, games=0)
