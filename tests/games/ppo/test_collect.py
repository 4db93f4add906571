"""A rollout holds what each role saw, did and gained until its own next turn."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.games.game import FusedGame, Moves, State, Step
from ludus.games.kernels.ppo.iteration import PpoNumbers
from ludus.games.ppo.actor_critic import make_actor_critic
from ludus.games.ppo.collect import Rollout, collect
from ludus.games.ppo.counter_random import keys_of
from ludus.games.ppo.learn import filled
from ludus.games.ppo.live import LiveGames
from ludus.games.ppo.past import meeting
from ludus.nn.distributions import Categorical
from tests.games.ppo import plain
from tests.games.ppo.small import small_ppo, small_self_play

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def prepared(config: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    return trainer


def tic_tac_toe(**changed: Any) -> tuple[Any, Rollout]:
    trainer = prepared(small_self_play(num_games=7, rollout_steps=12, **changed))
    return trainer, trainer.collect_rollout(0)


def replayed(actions: list[list[list[int]]]) -> list[dict[tuple[int, int], Any]]:
    """Play the games of (turns, roles, games) moves by the rules, one by one, in the plainest way.

    Returns for each game, by turn and role: reward until the next turn, whether it ended before that,
    whether a move was made, and whether what came of it is known.
    """
    found = []
    for game in range(len(actions[0][0])):
        board, is_over = [""] * 9, False
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        latest: dict[int, dict[str, Any]] = {}
        for turn, moves in enumerate(actions):
            if is_over:
                board, is_over = [""] * 9, False
            for role in range(2):
                if role in latest and not latest[role]["ended"]:
                    latest[role]["known"] = True
                row = {"reward": 0.0, "ended": False, "moved": not is_over, "known": False}
                rows[turn, role] = row
                if is_over:
                    latest.pop(role, None)
                    continue
                cell = moves[role][game]
                assert board[cell] == "", "an illegal move was played"
                board[cell], latest[role] = "XO"[role], row
                has_won = any(all(board[c] == "XO"[role] for c in line) for line in LINES)
                is_over = has_won or all(board)
                if is_over:
                    for who, open_row in latest.items():
                        if not open_row["ended"] and not open_row["known"]:
                            open_row["ended"] = open_row["known"] = True
                            if has_won:
                                open_row["reward"] = 1.0 if who == role else -1.0
            if is_over:
                latest = {}
        if 0 in latest:
            # The first role moves next, so it sees what came of its last move.
            latest[0]["known"] = True
        found.append(rows)
    return found


def test_a_role_gains_what_comes_until_its_own_next_turn() -> None:
    _, rollout = tic_tac_toe()
    actions = rollout.actions[..., 0].unflatten(1, (2, 7)).tolist()
    num_ended = 0
    for game, rows in enumerate(replayed(actions)):
        for (turn, role), row in rows.items():
            place = role * 7 + game
            assert rollout.kept is not None
            is_kept = bool(rollout.kept[turn, place])
            assert is_kept == (row["moved"] and row["known"]), (game, turn, role)
            if is_kept:
                assert float(rollout.rewards[turn, place]) == row["reward"], (game, turn, role)
                assert bool(rollout.ended[turn, place]) == row["ended"], (game, turn, role)
                num_ended += row["ended"]
    assert num_ended > 20


def test_what_a_role_sees_next_is_what_it_sees_at_its_next_turn() -> None:
    _, rollout = tic_tac_toe()
    goes_on_TN = ~rollout.over
    assert goes_on_TN[:-1].sum() > 50
    assert torch.equal(rollout.after[:-1][goes_on_TN[:-1]], rollout.obs[1:][goes_on_TN[:-1]])


def test_finished_games_begin_anew_and_none_is_over_between_turns() -> None:
    trainer, rollout = tic_tac_toe()
    assert not trainer.fused_game.over(trainer.live.state).any()
    # The first role's games that were over are empty boards at its next turn.
    ended = rollout.over[:-1, :7]
    assert ended.any()
    assert (rollout.obs[1:, :7][ended] == 0).all()


def test_every_finished_game_is_counted_once_with_its_moves_and_returns() -> None:
    trainer, rollout = tic_tac_toe()
    count, length, first, second = trainer.live.totals.tolist()
    assert rollout.kept is not None
    assert count == rollout.ended[:, :7].sum()
    assert first == -second
    moved = length + float(trainer.live.lengths_B.sum())
    assert moved == 12 * 14 - float((rollout.over & ~rollout.ended & ~rollout.kept).sum())


def obvious_advantages(trainer: Any, rollout: Rollout) -> Tensor:
    """Return generalised advantages by their definition: a discounted sum of errors up to a cut."""
    config, learner = trainer.config, trainer.learner
    values_TN = learner(rollout.obs.flatten(0, 1))[1].view_as(rollout.rewards)
    after_TN = learner(rollout.after.flatten(0, 1))[1].view_as(rollout.rewards)
    errors_TN = rollout.rewards + config.gamma * after_TN * ~rollout.ended - values_TN
    turns, sides = errors_TN.shape
    found_TN = torch.zeros_like(errors_TN)
    for side in range(sides):
        for turn in range(turns):
            weight = 1.0
            for later in range(turn, turns):
                if later > turn and rollout.kept is not None and not rollout.kept[later, side]:
                    break
                found_TN[turn, side] += weight * errors_TN[later, side]
                weight *= config.gamma * config.gae_lambda
                if rollout.over[later, side]:
                    break
    return found_TN


@torch.no_grad()
def test_no_advantage_leans_on_a_move_whose_outcome_is_not_known() -> None:
    trainer, rollout = tic_tac_toe()
    rows = trainer.ppo.estimate(rollout)
    assert rollout.kept is not None
    expected = obvious_advantages(trainer, rollout).flatten()[filled(rollout.kept.flatten())]
    sizes = trainer.ppo._sizes
    assert torch.allclose(rows.split(sizes, 1)[3].squeeze(1), expected, atol=1e-5)


def test_every_row_that_is_learned_from_is_a_kept_one_and_each_is_about_as_often() -> None:
    kept = torch.tensor([False, True, False, True, True, False, False])
    places = filled(kept)
    assert places.tolist() == [1, 1, 1, 3, 3, 4, 4]
    assert filled(torch.ones(4, dtype=torch.bool)).tolist() == [0, 1, 2, 3]


def test_moves_of_past_players_are_not_learned_from() -> None:
    trainer, rollout = tic_tac_toe(past_players={"size": 2, "keep_every_rounds": 1, "share": 4 / 7})
    assert rollout.kept is not None
    theirs_N = trainer.past.plays_RB.flatten()
    assert theirs_N.sum() == 4
    assert not rollout.kept[:, theirs_N].any()
    assert rollout.kept[:, ~theirs_N].any(0).all()


def test_a_past_player_plays_its_own_role_in_its_own_games_and_legal_moves_alone() -> None:
    past = {"size": 1, "keep_every_rounds": 0, "share": 4 / 7}
    trainer, _ = tic_tac_toe(past_players=past, seed=1)
    with torch.no_grad():
        for vector in trainer.flat.vectors:
            vector.mul_(-2.0)
    policy, by_others_RB = meeting(trainer.past, trainer.outputs, trainer.ppo.masked, 3)
    assert by_others_RB is not None
    obs_BO = torch.zeros(7, 18)
    obs_BO[:, 4] = 1.0  # a stone in the middle
    own_BA = trainer.outputs(obs_BO)[0]
    theirs_BA = trainer.ppo.masked(trainer.past.outputs(0, obs_BO)[0], obs_BO)
    assert not torch.allclose(own_BA, theirs_BA)
    for role in (0, 1):
        found_BA = policy(obs_BO, role)[0]
        # Of seven games they play four, the first role in the first and third of them.
        theirs = [game for game in range(4) if game % 2 == role]
        assert by_others_RB[role].nonzero().flatten().tolist() == theirs
        for game in range(7):
            assert torch.equal(found_BA[game], (theirs_BA if game in theirs else own_BA)[game])
        assert (found_BA.argmax(1) != 4).all()
        assert (found_BA[:, 4] < found_BA[:, :4].amin(1) - 1e6).all()


@pytest.mark.parametrize(
    ("num_games", "share", "told"),
    [
        (
            1,
            0.5,
            "is 0.5 of 'num_games' 1; past players need a game for each of 2 roles, so play 4",
        ),
        (4, 0.25, "is 1 of 'num_games' 4; .* so play 8 games or more"),
        (8, 0.3, "is no whole number of 8 games; set it to 0.25, or play more"),
    ],
)
def test_a_share_that_so_few_games_cannot_have_is_refused(
    num_games: int, share: float, told: str
) -> None:
    past = {"size": 1, "keep_every_rounds": 0, "share": share}
    with pytest.raises(ConfigError, match=told):
        small_self_play(past_players=past, num_games=num_games)


def test_a_past_player_plays_by_its_own_weights() -> None:
    past = {"size": 2, "keep_every_rounds": 1, "share": 1.0}
    trainer, _ = tic_tac_toe(past_players=past, seed=1)
    obs = torch.zeros(3, 18)
    before = trainer.learner(obs)[0].detach().clone()
    with torch.no_grad():
        trainer.flat.vectors[0].add_(1.0)
    assert torch.equal(trainer.past.outputs(0, obs)[0], before)
    assert not torch.equal(trainer.learner(obs)[0], before)


class WithStatistics(nn.Module):
    """An actor-critic whose answers depend on a buffer."""

    is_repeatable = True

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(18)
        self.layers = make_actor_critic(18, Moves(9), [8])

    def forward(self, obs: Tensor) -> Any:
        return self.layers(self.norm(obs))


def test_a_past_player_plays_by_its_own_statistics() -> None:
    trainer: Any = ludus.build_trainer(
        small_self_play(past_players={"size": 2, "keep_every_rounds": 1, "share": 1.0})
    )
    trainer.set_model(WithStatistics())
    trainer.prepare(max_steps=None)
    trainer.past.keep(0)
    obs = torch.rand(3, 18)
    before = trainer.learner(obs)[0].detach().clone()
    trainer.network.norm.running_mean += 3.0
    assert torch.equal(trainer.past.outputs(0, obs)[0], before)
    assert not torch.equal(trainer.learner(obs)[0], before)
    state = copy.deepcopy(trainer.past.state_dict())
    trainer.past.keep(1)
    trainer.past.keep(2)
    assert not torch.equal(trainer.past.outputs(0, obs)[0], before)
    trainer.past.load_state_dict(state)
    assert torch.equal(trainer.past.outputs(0, obs)[0], before)


def test_extra_state_is_refused_where_past_players_would_lack_it() -> None:
    class Extra(WithStatistics):
        def get_extra_state(self) -> Any:
            return {"seen": 1}

        def set_extra_state(self, state: Any) -> None:
            pass

    trainer: Any = ludus.build_trainer(
        small_self_play(past_players={"size": 2, "keep_every_rounds": 1, "share": 1.0})
    )
    trainer.set_model(Extra())
    with pytest.raises(ConfigError, match=r"Extra has extra state.*set past_players to null"):
        trainer.prepare(max_steps=None)


def test_the_oldest_of_the_past_players_goes_first() -> None:
    trainer, _ = tic_tac_toe(past_players={"size": 2, "keep_every_rounds": 2, "share": 1.0})
    first = trainer.past.rings[0][0].clone()
    assert trainer.past.num_kept == 1
    for rounds in (1, 2, 3, 4):
        with torch.no_grad():
            trainer.flat.vectors[0].add_(1.0)
        trainer.past.keep(rounds)
    # Kept after 0, 2 and 4 rounds, of which the last has taken the place of the first.
    assert trainer.past.num_kept == 3
    assert torch.allclose(trainer.past.rings[0][1], first + 2, atol=1e-4)
    assert torch.allclose(trainer.past.rings[0][0], first + 4, atol=1e-4)
    assert {trainer.past.chosen(iteration) for iteration in range(20)} == {0, 1}


def test_a_past_player_answers_for_its_own_role_alone() -> None:
    trainer, _ = tic_tac_toe(past_players={"size": 1, "keep_every_rounds": 9, "share": 1.0})
    with torch.no_grad():
        trainer.flat.vectors[0].mul_(-1.0)
    policy, by_others_RB = meeting(trainer.past, trainer.outputs, trainer.ppo.masked, 1)
    obs = torch.zeros(7, 18)
    own, past = trainer.outputs(obs)[0], trainer.past.outputs(0, obs)[0]
    assert by_others_RB is not None
    for role in (0, 1):
        found = policy(obs, role)[0]
        theirs = by_others_RB[role]
        assert theirs.any()
        assert torch.equal(found[theirs], past[theirs])
        assert torch.equal(found[~theirs], own[~theirs])


@pytest.mark.parametrize("limit", [3, 500])
def test_a_game_for_one_is_collected_as_the_reference_does_it(limit: int) -> None:
    """The kernels agree with the reference, so a run on CUDA draws what one on the CPU draws."""
    config = small_ppo(num_games=4, rollout_steps=32, minibatches=4, **{"game.max_steps": limit})
    trainer = prepared(config)
    game, keys, net = trainer.fused_game, keys_of(config.seed), trainer.learner
    live = plain.begin(game, keys, num_games=4, device=torch.device("cpu"))
    for iteration in range(2):
        found, live = plain.rollout(
            game, net, trainer.distribution, live, keys, steps=config.rollout_steps
        )
        own = trainer.collect_rollout(iteration)
        assert torch.equal(own.actions[..., 0], found.actions)
        assert torch.equal(own.rewards, found.rewards)
        assert torch.equal(own.ended, found.ended)
        assert torch.equal(own.over, found.ended | found.truncated)
        assert torch.equal(own.over, found.ended) == (limit == 500)
        assert torch.equal(own.after, found.after)
        rows = trainer.ppo.estimate(own)
        theirs = plain.estimate(net, found, gamma=config.gamma, gae_lambda=config.gae_lambda)
        columns = rows.split(trainer.ppo._sizes, 1)
        assert torch.allclose(columns[2].squeeze(1), theirs.log_probs, atol=1e-6)
        assert torch.allclose(columns[3].squeeze(1), theirs.advantages, atol=1e-5)


def test_a_game_that_is_cut_off_is_worth_what_its_last_position_promises() -> None:
    trainer = prepared(small_ppo(**{"game.max_steps": 2, "gae_lambda": 0.0, "gamma": 0.9}))
    rollout = trainer.collect_rollout(0)
    cut = rollout.over & ~rollout.ended
    assert cut.any()
    with torch.no_grad():
        value = trainer.learner(rollout.after[cut])[1]
        rows = trainer.ppo.estimate(rollout).split(trainer.ppo._sizes, 1)
    returns = (rows[3] + rows[4]).view_as(rollout.rewards)
    assert torch.allclose(returns[cut], 1 + 0.9 * value, atol=1e-5)
    # It is the last position of that game, not the first of the next.
    assert not torch.equal(rollout.after[:-1][cut[:-1]], rollout.obs[1:][cut[:-1]])


def test_a_round_ends_with_the_weights_of_the_reference() -> None:
    config = small_ppo(
        num_games=4, rollout_steps=32, minibatches=4, max_rounds=1, max_grad_norm=0.5, value_clip=0.2,
        entropy_coef=0.01, keep_every_rounds=0,
    )  # fmt: skip
    own, other = ludus.build_trainer(config), prepared(config)
    own.fit(runtime=InMemoryRuntime)
    game, keys, learner = other.fused_game, keys_of(config.seed), other.learner
    numbers = PpoNumbers(**{name: getattr(config, name) for name in PpoNumbers.__annotations__})
    live = plain.begin(game, keys, num_games=4, device=torch.device("cpu"))
    found, after = plain.rollout(
        game, learner, other.distribution, live, keys, steps=config.rollout_steps
    )
    rows = plain.estimate(learner, found, gamma=config.gamma, gae_lambda=config.gae_lambda)
    plain.update(
        learner, other.distribution, rows, keys, live.iteration, numbers,
        learning_rate=torch.tensor(0.01), clip=torch.tensor(config.clip),
    )  # fmt: skip
    assert torch.allclose(own.flat.vectors[0], learner.flat.vectors[0], atol=1e-5)
    assert not torch.allclose(prepared(config).flat.vectors[0], learner.flat.vectors[0], atol=1e-3)
    for name, value in after.state.items():
        assert torch.equal(own.live.state[name], value)


class Payments(FusedGame):
    """A symmetric game of four moves, each of which is paid for by the other role."""

    roles = ("first", "second")
    is_symmetric = True

    def actions(self, role: str) -> Moves:
        return Moves(2)

    def observation_size(self, role: str) -> int:
        return 1

    def reset(self, games: int, generator: torch.Generator) -> State:
        return {"moves": torch.zeros(games, dtype=torch.int64)}

    def observe(self, state: State, role: str) -> Tensor:
        return state["moves"].float().unsqueeze(1)

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        paid_B = torch.ones(len(actions))
        gains = [paid_B, -paid_B] if role == "first" else [-paid_B, paid_B]
        return Step({"moves": state["moves"] + 1}, torch.stack(gains, 1))

    def done(self, state: State) -> Tensor:
        return state["moves"] >= 4


def test_what_the_next_game_brings_is_not_gained_by_a_move_of_the_last() -> None:
    live = LiveGames(Payments(), num_games=3, seed=0, device=torch.device("cpu"))
    outputs = torch.zeros(3, 2)
    rollout = collect(
        live, lambda obs, role: (outputs, None), Categorical(9),
        iteration=0, turns=4, by_others_RB=None,
    )  # fmt: skip
    first, second = rollout.rewards[:, 0].tolist(), rollout.rewards[:, 3].tolist()
    # Paid for its own move, the first role pays for the other's; the second's last move ends the game.
    assert first == [0.0, 0.0, 0.0, 0.0]
    assert second == [0.0, 1.0, 0.0, 1.0]
    assert rollout.ended[:, 0].tolist() == [False, True, False, True]
    assert rollout.ended[:, 3].tolist() == [False, True, False, True]
