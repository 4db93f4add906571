"""`ludus.load` returns what a run trained, without its trainer, and says in a sentence why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus.core.errors import ConfigError, LudusError, RunError
from ludus.games.player import ask
from ludus.seeds import generator
from tests.active.conftest import small_active
from tests.arena.small import small_arena
from tests.arena.small_solo import small_solo
from tests.command_line import small_config
from tests.games.dqn.small import small_dqn
from tests.games.ppo.small import small_ppo
from tests.rl.small import small

WINE = torch.linspace(-1, 1, 4 * 13).reshape(4, 13)
NO_VALIDATION = {"evaluate_every_epochs": 0, "evaluation.patience": None, "evaluation.keep": 0}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of finished runs: `small`, which has a best model, `unjudged`, which has none, and `pole`."""
    place = tmp_path_factory.mktemp("runs")
    ludus.build_trainer(small_config()).fit(root=str(place))
    ludus.build_trainer(small_config(**NO_VALIDATION)).fit(root=str(place), name="unjudged")
    ludus.build_trainer(small("dqn")).fit(root=str(place), name="pole")
    return place


def outputs(trainer: Any) -> torch.Tensor:
    with torch.no_grad(), trainer.model.evaluating(), trainer.averaged():
        return trainer.model(WINE)


def loaded(run: Any, *more: Any, **options: Any) -> torch.Tensor:
    network = ludus.load(run, *more, expected=nn.Module, **options)
    assert not network.training
    with torch.no_grad():
        return network(WINE)


SCHEDULE_FREE = {
    "kind": "schedule_free_adamw", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
    "weight_decay": 0.0, "step_power": 0.0, "rate_power": 2.0,
}  # fmt: skip
MEANS = {
    "plain": {"ema_decay": None},
    "ema": {"ema_decay": 0.5},
    "schedule-free": {"ema_decay": None, "optimizer": SCHEDULE_FREE},
}


@pytest.mark.parametrize("changes", MEANS.values(), ids=MEANS)
def test_the_last_weights_of_a_model_are_those_that_it_is_evaluated_with(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    trainer: Any = ludus.build_trainer(small_config(**changes))
    trainer.fit(root=str(tmp_path))
    assert torch.equal(loaded(tmp_path / "small", "last"), outputs(trainer))


def test_a_run_is_named_by_its_directory_or_below_its_root(root: Path) -> None:
    best = loaded(root / "small")
    assert torch.equal(loaded("small", root=root), best)
    (newest,) = {one.name for one in (root / "small/models").glob("best-*")}
    for name in (newest, f"models/{newest}", root / "small/models/best"):
        assert torch.equal(loaded(root / "small", name), best)


def test_a_model_is_loaded_where_its_data_are_gone(tmp_path: Path) -> None:
    from tests.data.files import write_table

    section = write_table(tmp_path / "table.csv")
    model = {**small_config().model.model_dump(), "inputs": 5, "outputs": 2}
    ludus.build_trainer(small_config(data=section, model=model)).fit(root=str(tmp_path))
    (tmp_path / "table.csv").unlink()
    for name in ("best", "last"):
        assert ludus.load(tmp_path / "small", name)(torch.zeros(1, 5)).shape == (1, 2)


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_an_agent_acts_as_it_did_at_the_end_of_its_run(kind: str, tmp_path: Path) -> None:
    normalise = {"observations": True, "rewards": False, "clip": 10.0}
    trainer: Any = ludus.build_trainer(small(kind, normalise=normalise))
    trainer.fit(root=str(tmp_path), name=kind)
    policy = ludus.load(tmp_path / kind, "last", expected=ludus.Policy)
    obs = trainer.env.obs.copy()
    trainer.agent.eval()
    assert (
        policy.act(obs).reshape(3, -1) == trainer.agent.act_greedy(obs, None).reshape(3, -1)
    ).all()
    assert ludus.load(tmp_path / kind, expected=ludus.Policy).act(obs[0]) is not None


def test_the_candidate_of_an_active_run_is_loaded(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small_active())
    trainer.fit(root=str(tmp_path))
    assert torch.equal(loaded(tmp_path / "wines", "last"), outputs(trainer))


def test_the_chosen_one_of_several_given_networks_is_loaded(tmp_path: Path) -> None:
    def networks() -> list[nn.Module]:
        return [nn.Linear(13, 3), nn.Sequential(nn.Linear(13, 5), nn.ReLU(), nn.Linear(5, 3))]

    trainer: Any = ludus.ActiveTrainer(small_active(model=None, selection=None))
    trainer.set_model(networks())
    trainer.set_model(1)
    trainer.fit(root=str(tmp_path))
    run = tmp_path / "wines"
    assert torch.equal(loaded(run, "last", network=networks()), outputs(trainer))
    with pytest.raises(ConfigError, match=r"network .* was given by its script; give one like it"):
        ludus.load(run, "last")


def test_a_committee_is_loaded_whole(tmp_path: Path) -> None:
    config = small_active(strategy={"kind": "committee_kl", "members": 2, "shortlist": None})
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(tmp_path))
    assert torch.equal(loaded(tmp_path / "wines", "last"), outputs(trainer))


def test_the_players_of_two_roles_are_loaded_and_one_is_chosen(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small_dqn())
    trainer.fit(root=str(tmp_path), name="two")
    players = ludus.load(tmp_path / "two", "last")
    assert [*players] == ["host", "agent"]
    state = trainer.fused_game.reset(5, generator(0, "start"))
    host = ludus.load(tmp_path / "two", "last", agent="host")
    draws = generator(0, "draws")
    with trainer.seating.inference_mode():
        wanted = ask(trainer.players["host"], trainer.fused_game, state, "host", draws)
    assert torch.equal(ask(host, trainer.fused_game, state, "host", draws), wanted)
    with pytest.raises(LudusError, match=r"has no agent 'hots'. Did you mean 'host'"):
        ludus.load(tmp_path / "two", "last", agent="hots")


def test_the_player_of_a_game_of_one_network_is_loaded(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small_ppo())
    trainer.fit(root=str(tmp_path), name="one")
    player = ludus.load(tmp_path / "one", "last")
    obs = torch.randn(6, 4)
    with torch.no_grad():
        wanted = trainer.outputs(obs)[0].argmax(1)
    assert torch.equal(player.act(obs, None, generator(0, "draws")), wanted)
    with pytest.raises(LudusError, match="there is no agent 'host' to choose; leave agent away"):
        ludus.load(tmp_path / "one", agent="host")


@pytest.mark.parametrize("make", [small_arena, small_solo])
def test_each_agent_of_the_arena_is_loaded(make: Callable[[], Any], tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(make())
    trainer.fit(root=str(tmp_path), name="arena")
    agents = ludus.load(tmp_path / "arena", "last")
    assert [*agents] == [*trainer.agents.names]
    for name, agent in agents.items():
        assert not agent.training
        own = trainer.agents.member(name).state_dict()
        assert all(torch.equal(agent.state_dict()[key], own[key]) for key in own)
    first = next(iter(agents))
    assert isinstance(ludus.load(tmp_path / "arena", "last", agent=first), nn.Module)


def test_a_network_of_a_script_is_given_again_or_what_makes_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trainer: Any = ludus.build_trainer(small_config(model=None))
    trainer.set_model(nn.Linear(13, 3))
    trainer.fit(root=str(tmp_path))
    run = tmp_path / "small"
    for network in (nn.Linear(13, 3), lambda: nn.Linear(13, 3), ludus.Model(nn.Linear(13, 3))):
        assert torch.equal(loaded(run, "last", network=network), outputs(trainer))
    with pytest.raises(
        ConfigError, match=r"the network of the run 'small' was given by its script"
    ):
        ludus.load(run)
    with pytest.raises(RunError, match=r"do not fit the network of .*small: 'weight'.*another run"):
        ludus.load(run, network=nn.Linear(13, 4))
    with pytest.raises(ConfigError, match="network was given a str; give a torch network"):
        ludus.load(run, network=lambda: "linear")


def test_a_body_that_a_script_gave_an_agent_is_given_again(tmp_path: Path) -> None:
    def body() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh())

    trainer: Any = ludus.build_trainer(small("ppo"))
    trainer.set_model(body())
    trainer.fit(root=str(tmp_path), name="pole")
    obs = trainer.env.obs.copy()
    policy = ludus.load(tmp_path / "pole", "last", network=body)
    assert (policy.act(obs) == trainer.agent.act_greedy(obs, None)).all()
    with pytest.raises(ConfigError, match=r"the network of the run .* was given by its script"):
        ludus.load(tmp_path / "pole")


def test_a_run_whose_script_gave_only_data_or_a_trainer_of_its_own_needs_no_script(
    tmp_path: Path,
) -> None:
    rows = torch.utils.data.TensorDataset(torch.randn(64, 13), torch.randint(3, (64,)))

    class Mine(ludus.Trainer):
        """Is not what the config's kind names."""

    trainer: Any = Mine(small_config(data=None, **NO_VALIDATION), train_loader=rows)
    trainer.fit(root=str(tmp_path))
    assert torch.equal(loaded(tmp_path / "small", "last"), outputs(trainer))


# Mistakes


def test_a_run_without_a_best_model_says_so(root: Path) -> None:
    with pytest.raises(RunError, match=r"unjudged has no best model, .*take the newest weights"):
        ludus.load("unjudged", root=root)
    assert loaded("unjudged", "last", root=root).shape == (4, 3)


@pytest.mark.parametrize(("name", "to"), [("unjudged", "torch"), ("unjudged_pole", "numpy")])
def test_a_run_without_a_best_model_is_not_exported_as_if_it_had_one(
    root: Path, tmp_path: Path, name: str, to: Any
) -> None:
    if name == "unjudged_pole":
        ludus.build_trainer(small("ppo", evaluate_every_epochs=0)).fit(root=str(root), name=name)
    with pytest.raises(RunError, match=r"has no best model, .*take the newest weights"):
        ludus.export(name, tmp_path / "out", to=to, root=root)
    assert not any(tmp_path.iterdir())
    assert ludus.export(name, tmp_path / "out", to=to, root=root, model="last").exists()


def test_a_run_of_another_kind_is_told_by_what_was_expected(root: Path) -> None:
    with pytest.raises(RunError, match="a run of another kind: it gives a Policy, not a Module"):
        ludus.load("pole", root=root, expected=nn.Module)


def test_weights_of_another_run_do_not_fit(root: Path, tmp_path: Path) -> None:
    model = {**small_config().model.model_dump(), "widths": [9]}
    ludus.build_trainer(small_config(model=model)).fit(root=str(tmp_path))
    with pytest.raises(
        RunError, match=r"models/best do not fit the network of .*kept by another run"
    ):
        ludus.load(root / "small", tmp_path / "small/models/best")
    with pytest.raises(RunError, match=r"do not fit the network of .*pole"):
        ludus.load(root / "pole", tmp_path / "small/models/best")


def test_a_file_that_is_no_model_of_ludus_is_told_what_one_is(root: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"PK")
    with pytest.raises(RunError, match=r"is not one that ludus kept: a model is a directory of"):
        ludus.load(root / "small", tmp_path / "model.pt")
    with pytest.raises(RunError, match=r"model bset: no model is kept there; give best, last"):
        ludus.load(root / "small", "bset")


def test_a_place_without_a_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing is not a run directory"):
        ludus.load("nothing", root=tmp_path)


def test_a_run_that_keeps_no_weights_names_the_run_that_does(root: Path, tmp_path: Path) -> None:
    config = ludus.example("rerun_tests", run=str(root / "small"))
    quiet = {"settings.display": "none", "settings.loggers": [], "settings.device": "cpu"}
    ludus.build_trainer(config.replace(**quiet)).fit(root=str(tmp_path), name="tests")
    with pytest.raises(LudusError, match=r"keeps no weights of its own.*small; give that run"):
        ludus.load(tmp_path / "tests")


def test_a_run_in_an_object_store_is_loaded_by_its_place(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    trainer: Any = ludus.build_trainer(small_config(ema_decay=None))
    trainer.fit(root="memory://loading", name="small")
    assert torch.equal(loaded("memory://loading/small", "last"), outputs(trainer))
    assert torch.equal(loaded("small", "last", root="memory://loading"), outputs(trainer))
