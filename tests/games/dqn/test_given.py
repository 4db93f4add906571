"""What a script gives to a trainer of two roles is used, watched, saved or refused: never lost in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games import DQNTrainer
from ludus.games.roll_out import Experiences
from ludus.seeds import seed_everything
from tests.games.dqn.small import prepared, small_dqn
from tests.games.dqn.test_trainer import ACTIONS, INPUTS, ROLES, First, flat, net


def test_every_rollout_that_a_script_asks_for_is_of_new_games() -> None:
    trainer = prepared()
    first, second = (trainer.collect_rollout("host", 10).obs for _ in range(2))
    assert not torch.equal(first[:5], second[:5])
    state = trainer.given_state.state_dict()
    third = trainer._roll_out("host", 10).obs
    assert not torch.equal(second[:5], third[:5])
    other = prepared()
    other.given_state.load_state_dict(state)
    again = other._roll_out("host", 10).obs
    assert torch.equal(again, third), "the count is saved"
    assert torch.equal(prepared()._roll_out("host", 10).obs, first), "and the seed decides the rest"


@pytest.mark.covers("001-M5")
def test_a_roll_out_of_ones_own_is_what_a_run_remembers_and_what_its_other_names_ask() -> None:
    asked: list[tuple[str, int]] = []

    class Bold(DQNTrainer):
        def _roll_out(
            self, role: str, num_games: Any = None, steps: Any = None, **more: Any
        ) -> Any:
            asked.append((role, num_games))
            found = super()._roll_out(role, num_games, steps, **more)
            return found._replace(rewards=torch.full_like(found.rewards, 5.0))

    trainer = Bold(small_dqn())
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.fit(runtime=InMemoryRuntime)
    assert asked == [("host", 20), ("agent", 20)] + [("host", 6), ("agent", 6)] * 3
    assert trainer.host_replay_buffer.sample(30)["rewards"].unique().tolist() == [5.0]
    assert trainer.get_rollout("agent", 3).rewards.unique().tolist() == [5.0]
    assert asked[-1] == ("agent", 3)


@pytest.mark.parametrize("found", [[1, 2], (1, 2, 3, 4, 5), None, Experiences(*[None] * 5)])
def test_a_roll_out_that_gives_no_experiences_is_told(found: Any) -> None:
    class Odd(DQNTrainer):
        def _roll_out(self, *given: Any, **more: Any) -> Any:
            return found

    trainer = Odd(small_dqn())
    trainer.set_logger(ludus.Logger({"backends": []}))
    with pytest.raises(LudusError, match=r"Odd\._roll_out gave a \w+; return tensors \(obs"):
        trainer.fit(runtime=InMemoryRuntime)


class Counter(nn.Module):
    """A network of one's own with everything: a counting buffer, batch norm, dropout, a frozen layer."""

    def __init__(self, role: str, *, is_plain: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUTS[role], 6), nn.BatchNorm1d(6), nn.Dropout(0.3))
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.head = nn.Linear(6, ACTIONS[role])
        self.is_plain = is_plain
        self.calls = 0
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.is_plain:
            self.calls += 1
        else:
            self.count += 1.0
        out: Tensor = self.head(self.frozen(self.body(x)))
        return out + (self.count + self.calls).sin() * torch.arange(out.shape[1])


class Remembers(First):
    """A player that goes on from what it has played: it says how to save that, or not."""

    def __init__(self) -> None:
        self.asked = 0

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        self.asked += 1
        assert legal_BA is not None
        first, last = legal_BA.int().argmax(1), 2 - legal_BA.flip(1).int().argmax(1)
        return torch.where(legal_BA.any(1), first if self.asked % 3 else last, -1)


class Saves(Remembers):
    def state_dict(self) -> dict[str, Any]:
        return {"asked": self.asked}

    def load_state_dict(self, state: Any) -> None:
        self.asked = state["asked"]


EAGER = {"engine": "eager"}
WITH_AGENT = {**EAGER, "agent": None, "opponent": "given"}


def given_nets(who: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what of the config changes, and what is given, for one of the cases below."""
    torch.manual_seed(0)
    match who:
        case "trained":
            return EAGER, {role + "_net": Counter(role) for role in ROLES}
        case "opponent":
            return WITH_AGENT, {"agent_net": Counter("agent")}
        case "trained, plain":
            return EAGER, {"host_net": Counter("host", is_plain=True)}
        case "opponent, plain":
            return WITH_AGENT, {"agent_net": Counter("agent", is_plain=True)}
        case "player":
            return WITH_AGENT, {"agent_net": Saves()}
    return WITH_AGENT, {"agent_net": Remembers()}


CASES = ["trained", "opponent", "trained, plain", "opponent, plain", "player", "player, plain"]
NOT_SAVED = {
    "trained, plain": "Counter changes calls as it runs, which no checkpoint holds: make it a buffer",
    "opponent, plain": "Counter changes calls as it runs, which no checkpoint holds: make it a buffer",
    "player, plain": "Remembers changes asked as it runs, which no checkpoint holds: give it state_d",
}


def quiet(config: Any, **given: Any) -> DQNTrainer:
    trainer = DQNTrainer(config, **given)
    trainer.set_logger(ludus.Logger({"backends": []}))
    return trainer


def trainer_of(who: str, **changed: Any) -> DQNTrainer:
    config, given = given_nets(who)
    return quiet(small_dqn(**config, keep_every_rounds=0, **changed), **given)


@pytest.mark.parametrize("who", CASES)
def test_what_is_given_goes_on_where_it_was_or_the_run_says_why_not(
    who: str, tmp_path: Path
) -> None:
    root, whole = str(tmp_path), trainer_of(who)
    result = whole.fit(root=root, name="whole")
    told = list(result.inexact_because)
    if who in NOT_SAVED:
        assert [line[: len(NOT_SAVED[who])] for line in told] == [NOT_SAVED[who]]
        return
    assert told == []
    trainer_of(who, max_rounds=3).fit(root=root, name="run")
    resumed = trainer_of(who)
    resumed.fit(root=root, name="run", resume=True)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name
    assert repr(whole.given_state.state_dict()) == repr(resumed.given_state.state_dict())


@pytest.mark.parametrize("who", CASES)
def test_an_evaluation_disturbs_nothing_that_was_given(who: str) -> None:
    unseen, watched = (trainer_of(who, evaluate_every_rounds=k) for k in (0, 1))
    for trainer in (unseen, watched):
        seed_everything(0)
        trainer.fit(runtime=InMemoryRuntime)
    watched.evaluate_rho()
    watched.count_actions("host")
    list(watched.narrate(watched.weights(), 0))
    for name, weight in unseen.weights().items():
        assert torch.equal(weight, watched.weights()[name]), name
    for role in ROLES:
        one, two = unseen.get_net(role), watched.get_net(role)
        assert getattr(one, "asked", 0) == getattr(two, "asked", 0)
        assert getattr(one, "calls", 0) == getattr(two, "calls", 0)
        if isinstance(one, nn.Module):
            for name, tensor in one.state_dict().items():
                assert torch.equal(tensor, two.state_dict()[name]), name


def test_a_network_is_tried_as_a_copy_and_its_gradients_are_left_on() -> None:
    trained, opponent = Counter("host", is_plain=True), Counter("agent", is_plain=True)
    trainer = DQNTrainer(small_dqn(**WITH_AGENT), host_net=trained, agent_net=opponent)
    assert trainer.host_net is trained
    assert (trained.calls, opponent.calls) == (0, 0)
    assert all(weight.requires_grad for weight in opponent.head.parameters())
    assert not any(weight.requires_grad for weight in opponent.frozen.parameters())


class Replaces:
    """Calls a method of the trainer before the fourth round."""

    def __init__(self, trainer: Any, method: str, *given: Any) -> None:
        self.trainer, self.method, self.given = trainer, method, given

    def before_round(self, run: Any) -> None:
        if run.round("round") == 3:
            getattr(self.trainer, self.method)(*self.given)


def sevens(role: str, obs: Any, next_obs: Any, done: Tensor) -> Tensor:
    return torch.full(done.shape, 7.0)


REPLACED = [
    ("replace_nets", lambda: {"agent": First()}, "given agent_net"),
    ("replace_nets", lambda: {"host": net("host")}, "given host_net"),
    ("replace_reward_func", lambda: sevens, "given reward_func"),
]


@pytest.mark.covers("001-S10")
@pytest.mark.parametrize(("method", "given", "fact"), REPLACED)
def test_what_was_replaced_in_a_run_must_be_given_again_to_resume_it(
    method: str, given: Any, fact: str, tmp_path: Path
) -> None:
    def made(*, is_replaced: bool, is_whole: bool = True) -> DQNTrainer:
        torch.manual_seed(5)
        trainer = quiet(small_dqn(max_rounds=6 if is_whole else 4, keep_every_rounds=0))
        replacing = Replaces(trainer, method, given())
        trainer.add(replacing, name="replacing")
        if is_replaced:
            torch.manual_seed(5)
            getattr(trainer, method)(given())
        return trainer

    root = str(tmp_path)
    made(is_replaced=False, is_whole=False).fit(root=root, name="run")
    with pytest.raises(CheckpointError, match=f"the script gives other objects.*{fact}"):
        made(is_replaced=False).fit(root=root, name="run", resume=True)
    resumed = made(is_replaced=True)
    assert resumed.fit(root=root, name="run", resume=True).counters["round"] == 6
    whole = made(is_replaced=False)
    whole.fit(root=root, name="whole")
    for name, weight in whole.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name


def test_a_state_of_other_players_is_refused_with_the_way_to_give_them() -> None:
    trainer = prepared()
    trainer.replace_nets({"agent": First()})
    with pytest.raises(CheckpointError) as refused:
        prepared().load_state_dict(trainer.state_dict())
    assert (
        "'players/agent' was the player First when it was saved and is a network that learns now: give"
        " the trainer the same with replace_nets(agent_net=...) before fit" in str(refused.value)
    )


@pytest.mark.covers("001-S10", "001-D11")
def test_what_was_replaced_stays_for_the_next_run() -> None:
    trainer = quiet(small_dqn())
    player, own = First(), net("host")
    trainer.replace_nets({"agent": player, "host": own})
    for _ in range(2):
        trainer.fit(runtime=InMemoryRuntime)
        assert trainer.agent_net is player
        assert trainer.host_net is own
        assert trainer.trained_roles == ["host"]
    asked = player.asked
    assert asked > 0
    trainer.replace_nets(agent_net=net("agent"))
    trainer.set_trainable("agent")
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.trained_roles == ["host", "agent"]
    assert player.asked == asked


@pytest.mark.parametrize("engine", ["eager", "tape"])
def test_the_engine_goes_on_with_a_network_that_was_put_in_during_a_run(engine: str) -> None:
    updates = {}
    wide = nn.Sequential(nn.Linear(INPUTS["host"], 16), nn.ReLU(), nn.Linear(16, ACTIONS["host"]))

    class Kept(DQNTrainer):
        def after_round(self, run: Any) -> None:
            updates[run.round("round")] = type(self.learners["host"].execute).__name__

    trainer = Kept(small_dqn(engine=engine))
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.add(Replaces(trainer, "replace_nets", {"host": wide}), name="replacing")
    before = flat(wide)
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.host_net is wide, "its layers are of other widths"
    assert not torch.equal(flat(wide), before)
    assert updates[5] == updates[0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"nets": {"host": net("host")}, "host_net": net("host")},
            "two for the host, nets['host']",
        ),
        (
            {"nets": {"hots": net("host")}},
            "has no role 'hots', but host, agent. Did you mean 'host'",
        ),
        ({"host_net": 3}, "host_net is a int; give a torch.nn.Module, or a player with act"),
        ({"host_net": nn.Linear(18, 7)}, "gives (2, 7) for 2 observations; the host has 4 actions"),
    ],
)
def test_what_cannot_take_a_role_is_refused_and_nothing_is_replaced(
    given: dict[str, Any], told: str
) -> None:
    trainer = prepared()
    before = trainer.host_net, trainer.agent_net
    trainer.replace_nets(host_net=trainer.host_net)
    assert trainer.given_classes == {}, "new moments are no other network"
    with pytest.raises(ConfigError) as refused:
        trainer.replace_nets(**{"agent_net": First(), **given})
    assert told in str(refused.value)
    assert (trainer.host_net, trainer.agent_net) == before
    assert trainer.given_classes == {}
    with pytest.raises(ConfigError, match="replace_reward_func was given a int; give a function"):
        trainer.replace_reward_func(3)  # type: ignore[arg-type]


def test_a_script_that_takes_its_rewards_back_is_known_by_that() -> None:
    trainer = prepared(reward_func=sevens)
    assert trainer.given_classes == {"reward_func": "function"}
    trainer.replace_reward_func(None)
    assert trainer.given_classes == {}
    assert set(trainer._roll_out("host", 30).rewards.unique().tolist()) <= {0.0, 1.0}


class Growing:
    """Rewards that grow with every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, role: str, obs: Any, next_obs: Any, dones: Tensor) -> Tensor:
        self.calls += 1
        return dones.float() * self.calls

    reward = __call__


class GrowingSaved(Growing):
    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Any) -> None:
        self.calls = state["calls"]


@pytest.mark.parametrize("is_method", [False, True])
def test_a_reward_function_with_a_state_is_a_part_or_the_run_is_not_called_exact(
    is_method: bool, tmp_path: Path
) -> None:
    def trainer(kind: type[Growing], **changed: Any) -> DQNTrainer:
        given = kind()
        func = given.reward if is_method else given
        return DQNTrainer(small_dqn(**EAGER, keep_every_rounds=0, **changed), reward_func=func)

    plain = trainer(Growing)
    plain.fit(root=str(tmp_path), name="plain")
    (told,) = plain.inexact_because()
    assert told.startswith("Growing changes calls as it runs, which no checkpoint holds: give it")
    whole = trainer(GrowingSaved)
    whole.fit(root=str(tmp_path), name="whole")
    assert whole.inexact_because() == []
    trainer(GrowingSaved, max_rounds=3).fit(root=str(tmp_path), name="run")
    resumed = trainer(GrowingSaved)
    resumed.fit(root=str(tmp_path), name="run", resume=True)
    for name, weight in whole.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name
    calls = [one.given_state.state_dict()["reward_func"]["calls"] for one in (whole, resumed)]
    assert calls == [8, 8]


def test_a_reward_function_that_is_replaced_is_watched_from_then_on() -> None:
    trainer, growing = prepared(reward_func=sevens), Growing()
    growing.calls = 5
    trainer.replace_reward_func(growing)
    assert trainer.inexact_because() == []
    trainer.collect_rollout("host", 5)
    assert len(trainer.inexact_because()) == 1


def test_a_function_in_the_place_of_roll_out_is_what_a_run_remembers() -> None:
    trainer = DQNTrainer(small_dqn())
    own = trainer._roll_out

    def bold(role: str, num_games: int) -> Experiences:
        found = own(role, num_games)
        return found._replace(rewards=torch.full_like(found.rewards, 5.0))

    trainer._roll_out = bold  # type: ignore[assignment,method-assign]
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.host_replay_buffer.sample(30)["rewards"].unique().tolist() == [5.0]


class Rewarding(DQNTrainer):
    """Rewards by a method of its own."""

    def rewards(self, role: str, obs: Any, next_obs: Any, next_done: Tensor) -> Tensor:
        return next_done.float()


def test_a_trainer_may_reward_by_a_method_of_its_own_and_is_exact() -> None:
    trainer = Rewarding(small_dqn(**EAGER))
    trainer.replace_reward_func(trainer.rewards)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.inexact_because() == []
