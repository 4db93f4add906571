"""A host and an agent learn in one loop, and a script finds and changes what it needs by the known names."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
import ludus.games
from ludus.core.errors import ConfigError, Diverged, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games.dqn import role as role_module
from ludus.games.dqn.players import Mixed, ValuePlayer
from ludus.nn.schedules import Scheduler
from tests.games.dqn.reads import Reads
from tests.games.dqn.small import Ran, prepared, small_dqn
from tests.games.sections import hironaka

ROLES = ("host", "agent")
INPUTS = {"host": 18, "agent": 21}
ACTIONS = {"host": 4, "agent": 3}


def net(role: str) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS[role], 5), nn.Tanh(), nn.Linear(5, ACTIONS[role]))


def flat(module: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


class First:
    """Plays the first legal move, and counts how often it was asked."""

    asked = 0

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        self.asked += 1
        if legal_BA is None:
            return torch.zeros(len(obs_BO), dtype=torch.int64)
        return legal_BA.int().argmax(1)


@pytest.mark.covers("001-M4")
def test_each_scheduler_is_that_of_its_role_and_of_its_rate() -> None:
    linear = {"kind": "linear", "warmup_steps": 0, "total_steps": None}
    numbers = {"host": (0.4, 0.04, 0.02, 0.002), "agent": (0.3, 0.03, 0.01, 0.001)}
    changed: dict[str, Any] = {}
    for role, (explore, least, rate, slowest) in numbers.items():
        changed |= {
            f"{role}.exploration": {"initial": explore, "schedule": {**linear, "final": least}},
            f"{role}.optimizer.learning_rate": rate,
            f"{role}.learning_rate_schedule": {**linear, "final": slowest},
        }
    ran = Ran(small_dqn(**changed))
    for role, (explore, least, rate, slowest) in numbers.items():
        er, lr = (getattr(ran.trainer, f"{role}_{kind}_scheduler") for kind in ("er", "lr"))
        assert (er(0), er(6)) == pytest.approx((explore, least))
        assert (lr(0), lr(6)) == pytest.approx((rate, slowest))
        # The same numbers are what the role explored and learned with.
        assert ran.curve(f"{role}/exploration_rate")[-1] == pytest.approx(least)
        assert ran.curve(f"{role}/learning_rate")[-1] == pytest.approx(slowest)


@pytest.mark.covers("001-M4")
def test_what_a_host_and_an_agent_have_is_there_by_its_name_before_and_after_a_run() -> None:
    trainer = ludus.games.DQNTrainer(small_dqn())
    before = {role: flat(trainer.get_net(role)) for role in ROLES}
    for role in ROLES:
        assert isinstance(getattr(trainer, f"{role}_net"), nn.Module)
        assert len(getattr(trainer, f"{role}_optimizer").moments) > 0
        for schedule in ("lr", "er"):
            assert isinstance(getattr(trainer, f"{role}_{schedule}_scheduler"), Scheduler)
        assert int(getattr(trainer, f"{role}_replay_buffer").size) == 0
    assert trainer.fused_game.roles == ROLES
    net_before = trainer.host_net
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.host_net is net_before, "what was there before fit is what was trained"
    assert not torch.equal(flat(trainer.host_net), before["host"])
    assert not torch.equal(flat(trainer.agent_net), before["agent"])


@pytest.mark.covers("001-M5")
def test_roll_outs_of_a_trainer_come_in_the_known_order_and_only_collecting_remembers() -> None:
    trainer = prepared()
    size = int(trainer.host_replay_buffer.total_pushed)
    obs, actions, rewards, dones, next_obs = trainer._roll_out("host", 10, 3)
    assert len(obs) == len(actions) == len(rewards) == len(dones) == len(next_obs) <= 30
    assert len(trainer.get_rollout("host", 10, 3).obs) <= 30
    assert int(trainer.host_replay_buffer.total_pushed) == size
    kept = trainer.collect_rollout("host", 10)
    assert int(trainer.host_replay_buffer.total_pushed) == size + len(kept.obs)


@pytest.mark.covers("001-M5")
def test_set_training_is_what_batch_norm_sees() -> None:
    trainer = prepared()
    rows = torch.rand(6, INPUTS["host"])
    trainer.set_training(True)
    assert trainer.host_net.training
    assert trainer.agent_net[1].training
    in_training = trainer.host_net(rows)
    trainer.set_training(False)
    assert not trainer.host_net[1].training
    assert not torch.allclose(trainer.host_net(rows), in_training)


@pytest.mark.covers("001-D8")
@pytest.mark.parametrize("training", [True, False])
def test_inference_puts_every_layer_back_in_the_mode_it_was_in(training: bool) -> None:
    trainer = prepared()
    trainer.set_training(training)
    trainer.host_net[1].train(not training)
    for work in (trainer.evaluate_rho, lambda: trainer._roll_out("agent", 3, 2)):
        statistics = trainer.host_net[1].running_mean.clone()
        work()
        assert trainer.host_net.training is training
        assert trainer.host_net[1].training is not training
        assert torch.equal(trainer.host_net[1].running_mean, statistics)
    with trainer.inference_mode():
        assert not trainer.host_net.training
        assert not trainer.host_net[1].training


@pytest.mark.covers("001-M6", "001-D1")
def test_the_network_chooses_among_legal_next_moves_and_the_target_values_them() -> None:
    trainer = prepared(small_dqn(engine="eager"))
    learner = trainer.learners["agent"]
    batch = learner.replay.sample(64)
    # Any two coordinates, not just those that this host likes.
    batch["next_obs"][:, -3:] = 1.0
    batch["next_obs"][range(64), [18 + row % 3 for row in range(64)]] = 0.0
    batch["dones"] = torch.arange(64) % 5 == 0
    legal = trainer.fused_game.legal(batch["next_obs"], "agent")
    assert legal is not None
    seen: list[Any] = []
    found = role_module.td_targets

    def spied(*given: Any) -> Any:
        seen.append((given, found(*given)))
        return seen[-1][1]

    # Network and target disagree, and both like what is illegal in some rows.
    with torch.no_grad():
        for seed, vector in enumerate((*learner.learner.flat.vectors, *learner.target.vectors)):
            vector.copy_(torch.randn(len(vector), generator=torch.Generator().manual_seed(seed)))
    with torch.no_grad():
        by_target, by_network = (
            net(batch["next_obs"]) for net in (learner.target, learner.learner)
        )
    assert not torch.allclose(by_target, by_network)
    role_module.td_targets = spied
    try:
        learner.update(*(batch[name] for name in batch), torch.tensor([0.0]))
    finally:
        role_module.td_targets = found
    (((rewards, discounts, next_q, choosing, mask), targets),) = seen
    assert torch.equal(mask, legal)
    assert torch.equal(next_q, by_target)
    assert torch.equal(choosing, by_network)
    for row in range(64):
        assert discounts[row] == (0.0 if row % 5 == 0 else pytest.approx(0.95))
        allowed = [a for a in range(3) if legal[row, a]]
        chosen = max(allowed, key=lambda a: float(choosing[row, a]))
        wanted = rewards[row] + discounts[row] * next_q[row, chosen]
        assert targets[row] == pytest.approx(float(wanted), abs=1e-6)
    plain, unmasked = next_q.max(1).values, next_q.gather(1, choosing.argmax(1, keepdim=True))[:, 0]
    for wrong in (plain, unmasked):
        assert not torch.allclose(targets, rewards + discounts * wrong)


@pytest.mark.covers("001-S12")
def test_a_round_moves_the_target_then_fits_then_collects_for_each_role() -> None:
    ran = Ran(small_dqn())
    assert ran.done[:6] == [
        ("fit", "host", 0), ("fit", "agent", 0), ("fit", "host", 1), ("collect", "host", 1),
        ("fit", "agent", 1), ("collect", "agent", 1),
    ]  # fmt: skip
    third = [(stage, role) for stage, role, number in ran.done if number == 3]
    assert third == [
        ("sync_target", "host"), ("fit", "host"), ("collect", "host"),
        ("sync_target", "agent"), ("fit", "agent"), ("collect", "agent"),
    ]  # fmt: skip


@pytest.mark.covers("001-D4")
def test_schedules_move_at_every_step_of_one_call_for_either_role() -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": None}
    changed = {"agent.learning_rate_schedule": falling, "host.exploration.schedule": falling}
    ran = Ran(small_dqn(log_every_rounds=1, **changed))
    assert ran.curve("agent/learning_rate") == pytest.approx(
        [0.01 * (6 - i) / 6 for i in range(1, 7)]
    )
    assert ran.curve("host/exploration_rate") == pytest.approx(
        [0.5 * (6 - i) / 6 for i in range(1, 7)]
    )


@pytest.mark.covers("001-D10")
def test_a_run_shorter_than_its_interval_is_evaluated_all_the_same() -> None:
    ran = Ran(small_dqn(evaluate_every_rounds=1000), max_steps=4)
    assert ran.result.counters["round"] == 2
    assert ran.at("eval/host_rho") == [4]
    assert any("best" in name for name in ran.kept)


def test_the_length_given_to_fit_counts_the_updates_of_all_roles() -> None:
    assert Ran(small_dqn(), max_steps=5).result.counters == {
        **Ran(small_dqn(max_rounds=3, keep_every_rounds=0)).result.counters
    }
    alone = Ran(small_dqn(agent=None, opponent={"kind": "random"}), max_steps=5)
    assert alone.result.counters["round"] == alone.result.counters["opt_steps"] == 5
    with pytest.raises(ConfigError, match="a run has one step at least"):
        prepared().prepare(max_steps=0)


@pytest.mark.covers("001-S10")
def test_a_network_of_ones_own_is_trained_and_one_that_is_given_plays() -> None:
    own, opponent = net("host"), net("agent")
    before = flat(own), flat(opponent)
    ran = Ran(small_dqn(agent=None, opponent="given"), host_net=own, agent_net=opponent)
    assert ran.trainer.host_net is own
    assert ran.trainer.agent_net is opponent
    assert not torch.equal(flat(own), before[0])
    assert torch.equal(flat(opponent), before[1])
    assert ran.trainer.trained_roles == ["host"]


@pytest.mark.covers("001-S10")
def test_a_player_of_ones_own_plays_the_role_that_is_not_trained() -> None:
    player = First()
    ran = Ran(small_dqn(agent=None, opponent="given"), agent_net=player)
    assert ran.trainer.agent_net is player
    assert player.asked == 16, "an evaluation asks a copy"


@pytest.mark.covers("001-S10")
def test_a_role_that_is_frozen_plays_on_and_learns_nothing_until_it_is_set_free() -> None:
    class Freeze:
        def __init__(self, trainer: Any = None) -> None:
            self.frozen: list[Tensor] = []

        def before_round(self, run: Any) -> None:
            trainer = ran[0]
            if run.round("round") == 2:
                trainer.set_trainable("agent", False)
            if run.round("round") in (2, 4):
                self.frozen.append(flat(trainer.agent_net))
            if run.round("round") == 4:
                trainer.set_trainable("agent")

    ran: list[Any] = []
    callback = Freeze()

    class Kept(ludus.games.DQNTrainer):
        def before_train(self) -> None:
            ran.append(self)

    trainer = Kept(small_dqn())
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.add(callback)
    trainer.fit(runtime=InMemoryRuntime)
    assert torch.equal(*callback.frozen)
    assert trainer.learners["agent"].num_updates == 4
    assert trainer.learners["host"].num_updates == 6
    assert not torch.equal(flat(trainer.agent_net), callback.frozen[0])


@pytest.mark.covers("001-D11")
def test_a_replaced_network_learns_on_with_a_target_that_is_its_copy() -> None:
    trainer = prepared()
    other = net("host")
    trainer.learners["host"].step()
    trainer.replace_nets({"host": other})
    assert trainer.host_net is other
    learner = trainer.learners["host"]
    rows = torch.rand(3, INPUTS["host"])
    assert torch.equal(learner.target(rows), other(rows).detach())
    assert not any(
        float(m.abs().sum()) for moments in trainer.host_optimizer.moments for m in moments
    )
    before = flat(other)
    learner.step()
    assert not torch.equal(flat(other), before)
    trainer.replace_nets(agent_net=net("agent"))
    assert trainer.trained_roles == ["host", "agent"]


@pytest.mark.covers("001-D11")
def test_a_player_in_the_place_of_a_network_freezes_its_role_once_and_again() -> None:
    trainer = prepared()
    for _ in range(2):
        trainer.replace_nets({"agent": First()})
        assert trainer.trained_roles == ["host"]
    with pytest.raises(LudusError, match="played by a First, which cannot learn"):
        trainer.set_trainable("agent")
    trainer.replace_nets({"agent": net("agent")})
    trainer.set_trainable("agent")
    assert trainer.trained_roles == ["host", "agent"]


def test_rewards_of_ones_own_are_what_is_remembered() -> None:
    def seven(role: str, obs: Any, next_obs: Any, done: Tensor) -> Tensor:
        return torch.full(done.shape, 7.0 if role == "host" else -3.0)

    trainer = prepared(None, reward_func=seven)
    assert trainer.host_replay_buffer.sample(20)["rewards"].unique().tolist() == [7.0]
    assert trainer.agent_replay_buffer.sample(20)["rewards"].unique().tolist() == [-3.0]
    trainer.replace_reward_func(None)
    assert set(trainer._roll_out("host", 30).rewards.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.covers("001-M9")
def test_what_a_script_puts_into_a_scheduler_is_saved_with_the_run() -> None:
    trainer = prepared()
    trainer.host_lr_scheduler.data["best_step"] = 12
    other = prepared()
    other.learners["host"].load_state_dict(trainer.learners["host"].state_dict())
    assert other.host_lr_scheduler.data == {"best_step": 12}


@pytest.mark.parametrize(
    ("changed", "given", "told"),
    [
        ({"agent": None}, {}, "the agent is neither trained nor given"),
        ({"host": None, "agent": None}, {}, "nothing would learn"),
        ({"agent": None, "opponent": "given"}, {}, "'opponent' is given, but nobody gave it"),
        (
            {"agent": None, "opponent": {"kind": "random"}},
            {"agent_net": First()},
            "'opponent' names another player; set opponent to given",
        ),
        ({}, {"host_net": First()}, "host_net is a First, which cannot be trained"),
        ({}, {"host_net": nn.Linear(18, 3)}, "the host has 4 actions, so it must give (2, 4)"),
        (
            {},
            {"agent_net": nn.Linear(18, 3)},
            "cannot take observations of shape (B, 21)",
        ),
        (
            {"agent": None, "opponent": "given"},
            {"agent_net": object()},
            "agent_net is a object; give a torch.nn.Module, or a player",
        ),
        ({"game": {"kind": "tic_tac_toe"}}, {}, "trains a host and an agent: call the roles"),
        (
            {"host.net_arch": ["b"]},
            {},
            "'host': 'net_arch.0' is b, batch norm of the layer before it",
        ),
        ({"host.batch_size": 100}, {}, "more than replay_capacity 60 can hold"),
        ({"keep_every_rounds": 7}, {}, "but 'max_rounds' is 6: it would never be reached"),
        ({"evaluate_every_rounds": 0, "evaluation.patience": 2}, {}, "there are no evaluations"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_work_begins(
    changed: dict[str, Any], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        prepared(small_dqn(**changed), **given)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.covers("001-D6")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"evaluation.episodes": 1}, "all 1 games of an evaluation have ended before they begin"),
        (
            {"evaluate_every_rounds": 0, "host.initial_rollout_size": 1},
            "all 1 first games of the host had ended before they began; raise host.initial",
        ),
    ],
)
def test_a_start_where_every_game_has_ended_is_told(changed: dict[str, Any], told: str) -> None:
    few = {"game.max_num_points": 2, "game.dimension": 2}
    told_by = []
    for seed in range(30):
        with contextlib.suppress(LudusError):
            prepared(small_dqn(seed=seed, **few, **changed))
            continue
        with pytest.raises(LudusError) as refused:
            prepared(small_dqn(seed=seed, **few, **changed))
        told_by.append(str(refused.value))
        break
    assert told in told_by[0]


def test_illegal_moves_of_a_given_player_are_refused_by_game_role_and_index() -> None:
    class Wild(First):
        def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Tensor:
            return torch.full((len(obs_BO),), 2)

    with pytest.raises(LudusError, match="the agent of Hironaka played 2 in game"):
        Ran(small_dqn(agent=None, opponent="given"), agent_net=Wild())


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    def infinite(role: str, obs: Any, next_obs: Any, done: Tensor) -> Tensor:
        return torch.full(done.shape, torch.inf)

    with pytest.raises(Diverged, match="host/loss became"):
        Ran(small_dqn(), reward_func=infinite)


@pytest.mark.covers("001-S4")
def test_networks_take_what_a_role_sees_and_never_play_an_illegal_coordinate() -> None:
    trainer = prepared()
    for role in ROLES:
        assert trainer.fused_game.observation_size(role) == INPUTS[role]
        assert trainer.get_net(role)(torch.zeros(2, INPUTS[role])).shape == (2, ACTIONS[role])
    obs = torch.rand(300, INPUTS["agent"])
    obs[:, -3:] = 1.0
    obs[range(300), [18 + row % 3 for row in range(300)]] = 0.0
    with torch.no_grad():
        # One coordinate is worth more than any other, named or not.
        trainer.agent_net[-1].bias.copy_(torch.tensor([100.0, 0.0, 0.0]))
    for player in (trainer.learners["agent"], ValuePlayer(trainer.agent_net)):
        legal = trainer.fused_game.legal(obs, "agent")
        assert legal is not None
        moves = player.act(obs, legal, torch.Generator())
        assert legal.gather(1, moves[:, None]).all()
        assert (moves == 0).sum() == 200


def test_of_several_players_each_plays_its_own_games() -> None:
    class Says(First):
        def __init__(self, move: int) -> None:
            self.move = move

        def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Tensor:
            assert legal_BA is None or len(legal_BA) == len(obs_BO)
            return torch.full((len(obs_BO),), self.move)

    draws, obs, legal = torch.Generator(), torch.zeros(5, 2), torch.ones(5, 3, dtype=torch.bool)
    for mask in (None, legal):
        mixed = Mixed(hironaka(), "agent", [(Says(1), 0.4), (Says(0), 0.2)], Says(2))
        assert mixed.act(obs, mask, draws).tolist() == [1, 1, 0, 2, 2]
        alone = Mixed(hironaka(), "agent", [(Says(1), 1.0)], Says(2))
        assert alone.act(obs, mask, draws).tolist() == [1] * 5


def test_collecting_and_learning_never_wait_for_the_device() -> None:
    plain = {f"{role}.net_arch": [8] for role in ROLES}
    for engine in ("eager", "tape"):
        trainer = prepared(small_dqn(engine=engine, **plain))
        for role in ROLES:
            trainer._fit(role, trainer.run)
            with Reads() as syncs:
                trainer._collect(role, trainer.run)
                trainer._fit(role, trainer.run)
                trainer._sync_target(role, trainer.run)
            assert syncs.count == 0
    with Reads() as syncs:
        trainer._count_steps(trainer.run)
    assert syncs.count == 2


def test_of_several_players_each_is_told_that_its_own_games_begin() -> None:
    class Told(First):
        def begin(self, new_B: Tensor | None) -> None:
            self.new = None if new_B is None else new_B.tolist()

    one, two = Told(), Told()
    mixed = Mixed(hironaka(), "agent", [(one, 0.4)], two)
    mixed.begin(torch.tensor([True, False, True, True, False]))
    assert (one.new, two.new) == ([True, False], [True, True, False])
    mixed.begin(None)
    assert (one.new, two.new) == (None, None)


def test_what_would_be_ignored_is_refused() -> None:
    trainer = ludus.games.DQNTrainer(small_dqn())
    with pytest.raises(ConfigError, match=r"a network for each role; give Linear to DQNTrainer"):
        trainer.set_model(torch.nn.Linear(2, 2))
    with pytest.raises(
        ConfigError, match=r"so Evaluator would never be asked; change that section"
    ):
        trainer.set_evaluator(ludus.Evaluator(score=lambda agent: 0.0))
