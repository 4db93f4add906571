"""A trainer of two roles is copied, saved and loaded by a script, without a run and without pickle."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus.core.errors import CheckpointError, ConfigError, LudusError, StorageError
from ludus.core.runtime import InMemoryRuntime
from ludus.games import DQNTrainer
from ludus.store import state_folder
from tests.games.dqn.small import Ran, prepared, small_dqn
from tests.games.dqn.test_given import sevens
from tests.games.dqn.test_trainer import ROLES, First, net


def learned(**given: Any) -> DQNTrainer:
    trainer = prepared(**given)
    for learner in trainer.learners.values():
        for _ in range(3):
            learner.step()
    return trainer


def go_on(trainer: DQNTrainer) -> dict[str, torch.Tensor]:
    for learner in trainer.learners.values():
        learner.step()
        learner.sync_target()
        learner.step()
    return trainer.weights()


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.covers("001-S10", "001-D7")
def test_a_copy_goes_on_as_the_first_does_and_shares_nothing_with_it() -> None:
    trainer = learned()
    trainer.host_lr_scheduler.data["note"] = "kept"
    other = trainer.copy()
    assert other.config == trainer.config
    before = trainer.weights()
    ahead = go_on(other)
    assert same(trainer.weights(), before), "the first stays where it was"
    assert not same(ahead, before)
    assert same(go_on(trainer), ahead), "weights, targets, moments, buffers and draws are the same"
    assert other.host_lr_scheduler.data == {"note": "kept"}
    other.set_logger(ludus.Logger({"backends": []}))
    other.fit(runtime=InMemoryRuntime)
    assert other.learners["host"].num_updates == 3 + 2 + 6, "a run begins with what there is"


@pytest.mark.covers("001-S10", "001-D4")
@pytest.mark.parametrize("way", ["copy", "load"])
def test_a_run_after_copy_or_load_has_its_schedules_from_their_beginning(
    way: str, tmp_path: Path
) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "total_steps": None, "final": 0.0}
    config = small_dqn(
        **{"host.learning_rate_schedule": falling, "host.exploration.schedule": falling}
    )
    first = Ran(config).trainer
    assert first.learners["host"].learning_rate == 0.0
    first.save(tmp_path / "pair")
    again = first.copy() if way == "copy" else DQNTrainer.load(tmp_path / "pair")
    assert again.learners["host"].exploration_rate == 0.0, "it stands where it stood"
    before, rates, steps = again.weights(), [], []

    class Watching:
        def before_fit(self, run: Any) -> None:
            host = again.learners["host"]
            rates.append((host.learning_rate, host.exploration_rate))

        def after_record(self, run: Any) -> None:
            steps.append(run.counters["game_steps"])

    again.add(Watching(), name="watching")
    again.set_logger(ludus.Logger({"backends": []}))
    result = again.fit(runtime=InMemoryRuntime)
    role = config.host
    whole = role.optimizer.learning_rate, role.exploration.initial
    assert rates[0] == whole
    assert rates[4] == tuple(pytest.approx(number * 4 / 6) for number in whole)
    assert not same(again.weights(), before)
    learners = again.learners.values()
    assert result.counters["game_steps"] == sum(one.num_rows for one in learners) == steps[-1]
    pushed = sum(int(one.replay.total_pushed) for one in learners)
    held = sum(int(one.replay.total_pushed) for one in first.learners.values())
    assert result.counters["game_steps"] == pushed - (held if way == "copy" else 0)


@pytest.mark.covers("001-S10")
def test_a_run_after_load_is_resumed_where_its_schedules_stood(tmp_path: Path) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "total_steps": None, "final": 0.0}
    config = small_dqn(**{"host.learning_rate_schedule": falling})
    Ran(config).trainer.save(tmp_path / "pair")

    class Stopping:
        def after_record(self, run: Any) -> None:
            run.interrupted = run.counters["round"] == 2

    whole, cut = (DQNTrainer.load(tmp_path / "pair") for _ in range(2))
    whole.fit(root=str(tmp_path), name="whole")
    cut.add(Stopping(), name="stopping")
    assert cut.fit(root=str(tmp_path), name="run").counters["round"] == 2
    resumed = DQNTrainer(config)
    resumed.add(Stopping(), name="stopping")
    resumed.fit(root=str(tmp_path), name="run", resume=True)
    assert same(resumed.weights(), whole.weights())
    lines = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "run")]
    assert lines[0] == lines[1]


@pytest.mark.covers("001-S10")
def test_a_copy_has_copies_of_what_was_given() -> None:
    own, player = net("host"), First()
    trainer = learned(host_net=own, reward_func=sevens)
    trainer.replace_nets(agent_net=player)
    other = trainer.copy()
    assert type(other.agent_net) is First
    assert other.agent_net is not player
    assert other.host_net is not own
    assert other.trained_roles == ["host"]
    assert other._roll_out("host", 5).rewards.unique().tolist() == [7.0]


@pytest.mark.covers("001-S10", "001-D7")
def test_what_was_saved_is_loaded_and_learns_on_as_if_never_saved(tmp_path: Path) -> None:
    trainer = learned()
    trainer.save(tmp_path / "pair")
    for role in ROLES:
        trainer.save_replay_buffer(role, tmp_path / f"{role}s")
    assert sorted(path.name for path in (tmp_path / "pair").iterdir()) == [
        "state.json",
        "tensors.safetensors",
    ]
    loaded = DQNTrainer.load(tmp_path / "pair")
    assert loaded.config == trainer.config
    assert same(loaded.weights(), trainer.weights())
    assert loaded.learners["agent"].num_updates == 3
    for role in ROLES:
        assert int(loaded.get_replay_buffer(role).size) == 0
        loaded.load_replay_buffer(role, tmp_path / f"{role}s")
    assert same(go_on(loaded), go_on(trainer))


@pytest.mark.covers("001-S10")
def test_a_buffer_longer_than_a_piece_is_saved_whole(tmp_path: Path) -> None:
    config = small_dqn(**{"host.replay_capacity": 3000, "host.initial_rollout_size": 1500})
    trainer = prepared(config)
    assert int(trainer.host_replay_buffer.size) == 3000
    trainer.save_replay_buffer("host", tmp_path / "rows")
    other = prepared(config.replace(seed=7))
    other.load_replay_buffer("host", tmp_path / "rows")
    one, two = (t.host_replay_buffer.sample(500) for t in (trainer, other))
    for name in one:
        assert torch.equal(one[name], two[name]), name


@pytest.mark.covers("001-S10")
def test_what_a_script_gave_must_be_given_to_load_it(tmp_path: Path) -> None:
    trainer = learned(host_net=net("host"))
    trainer.replace_nets({"agent": First()})
    trainer.save(tmp_path / "pair")
    with pytest.raises(ConfigError, match="was saved with a Sequential as its host_net; give load"):
        DQNTrainer.load(tmp_path / "pair", agent_net=First())
    with pytest.raises(ConfigError, match="was saved with a First as its agent_net; give load"):
        DQNTrainer.load(tmp_path / "pair", host_net=net("host"))
    with pytest.raises(CheckpointError, match="is a network that learns now"):
        DQNTrainer.load(tmp_path / "pair", host_net=net("host"), agent_net=net("agent"))
    with pytest.raises(CheckpointError, match="the saved state of 'host' does not fit it"):
        DQNTrainer.load(tmp_path / "pair", host_net=nn.Linear(18, 4), agent_net=First())
    loaded = DQNTrainer.load(tmp_path / "pair", host_net=net("host"), agent_net=First())
    assert same(loaded.weights(), trainer.weights())
    assert loaded.trained_roles == ["host"]


def test_nothing_of_the_users_is_overwritten_and_ones_own_is_replaced(tmp_path: Path) -> None:
    trainer = learned()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    (tmp_path / "note").write_text("a file")
    with pytest.raises(
        StorageError, match=r"holds 'thesis\.txt', and is not a trainer of two roles"
    ):
        trainer.save(tmp_path / "mine")
    with pytest.raises(StorageError, match=r"is a file; a replay buffer is written to a directory"):
        trainer.save_replay_buffer("host", tmp_path / "note")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"
    trainer.save(tmp_path / "pair")
    with pytest.raises(StorageError, match="is not a replay buffer that ludus wrote"):
        trainer.save_replay_buffer("host", tmp_path / "pair")
    trainer.learners["host"].step()
    trainer.save(tmp_path / "pair")
    assert DQNTrainer.load(tmp_path / "pair").learners["host"].num_updates == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "note", "pair"]


def test_what_is_not_as_it_was_written_is_told(tmp_path: Path) -> None:
    trainer = learned()
    trainer.save(tmp_path / "pair")
    trainer.save_replay_buffer("host", tmp_path / "rows")
    with pytest.raises(CheckpointError, match="is not a trainer of two roles that this version"):
        DQNTrainer.load(tmp_path / "rows")
    with pytest.raises(CheckpointError, match="is no directory; name the one"):
        DQNTrainer.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="the saved state of 'agent_replay' does not fit it"):
        trainer.load_replay_buffer("agent", tmp_path / "rows")
    with pytest.raises(CheckpointError, match="saved with a capacity of 60 and has 50 now"):
        prepared(small_dqn(**{"host.replay_capacity": 50})).load_replay_buffer(
            "host", tmp_path / "rows"
        )
    note = json.loads((tmp_path / "pair" / "state.json").read_text())
    note["state"]["host"]["num_updates"] = -1
    (tmp_path / "pair" / "state.json").write_text(json.dumps(note))
    with pytest.raises(CheckpointError, match="'num_updates' is -1; it must be 0 or more"):
        DQNTrainer.load(tmp_path / "pair")
    (tmp_path / "rows" / "tensors.safetensors").write_bytes(b"?")
    with pytest.raises(CheckpointError, match="has changed since it was saved"):
        trainer.load_replay_buffer("host", tmp_path / "rows")


@pytest.mark.covers("001-S10")
def test_what_each_role_has_for_itself_is_asked_for_by_role() -> None:
    trainer = DQNTrainer(small_dqn(**{"host.gamma": 0.7}))
    assert {"gamma", "tau", "batch_size", "net_arch"} <= set(trainer.role_specific_hyperparameters)
    assert trainer.get_hyperparameter("host", "gamma") == 0.7
    assert trainer.get_hyperparameter("agent", "gamma") == 0.95
    for role in ROLES:
        assert trainer.get_net(role) is getattr(trainer, f"{role}_net")
        assert trainer.get_optimizer(role) is getattr(trainer, f"{role}_optimizer")
        assert trainer.get_lr_scheduler(role) is getattr(trainer, f"{role}_lr_scheduler")
        assert trainer.get_er_scheduler(role) is getattr(trainer, f"{role}_er_scheduler")
        assert trainer.get_replay_buffer(role) is getattr(trainer, f"{role}_replay_buffer")
    with pytest.raises(LudusError, match=r"no hyperparameter 'gama'\. Did you mean 'gamma'"):
        trainer.get_hyperparameter("host", "gama")
    with pytest.raises(LudusError, match=r"no learner of the role 'hots'\. Did you mean 'host'"):
        trainer.get_optimizer("hots")


def test_a_save_that_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = learned()
    trainer.save(tmp_path / "pair")
    trainer.learners["host"].step()

    def is_full(path: Path, tensors: Any) -> None:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_folder, "write_tensors", is_full)
    with pytest.raises(StorageError, match="No space left on device"):
        trainer.save(tmp_path / "pair")
    assert DQNTrainer.load(tmp_path / "pair").learners["host"].num_updates == 3
    assert [path.name for path in tmp_path.iterdir()] == ["pair"]
