"""What is collected in an epoch: how it is asked for, what it tells, what a script can read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus.core.errors import LudusError
from ludus.data.replay.rollout import RolloutBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.rl.agents.dqn import DqnTrainer
from ludus.rl.agents.ppo import PpoTrainer
from tests.rl.random_walks import walk_config
from tests.rl.small import PRIORITISED, small

EPOCHS = {
    "max_env_steps": 60,
    "max_opt_steps": None,
    "log_every_epochs": 1,
    "evaluate_every_epochs": 3,
    "keep_every_epochs": 0,
    "steps_per_epoch": 2,
    "updates_per_env_step": 0.5,
}
KEYS = {"action", "next_obs", "reward", "terminated", "truncated", "info", "num_steps"}


def in_epochs(**changes: Any) -> Any:
    config = small("dqn", counted_in="epochs", epochs=EPOCHS, learning_starts=10)
    return config.replace(env=walk_config(length=5), **changes)


@pytest.mark.parametrize("base", [DqnTrainer, PpoTrainer])
@pytest.mark.covers("000-M8", "000-S5")
def test_after_epoch_is_told_of_the_rollout_and_the_updates(tmp_path: Path, base: Any) -> None:
    class Informed(base):  # type: ignore[misc]
        heard: list[tuple[Any, int]]

        def before_train(self) -> None:
            self.heard = []

        def after_epoch(self, info: dict[str, Any]) -> None:
            self.heard.append((dict(info["rollout"]), info["num_model_updates"]))

    is_ppo = base is PpoTrainer
    trainer: Any = Informed(
        small("ppo").replace(env=walk_config(length=5)) if is_ppo else in_epochs()
    )
    trainer.fit(root=str(tmp_path))
    updates = [6] * 6 if is_ppo else [0, 6, 3, 3, 3, 3, 3, 3, 3, 3]
    assert [count for _, count in trainer.heard] == updates
    num_steps = 24 if is_ppo else 6
    for rollout, _ in trainer.heard:
        assert rollout.keys() == KEYS
        assert rollout["num_steps"] == num_steps
        assert rollout["next_obs"].shape == trainer.obs.shape
        assert rollout["info"].keys() == {"is_success"}
    # Episodes of five steps: the fifth epoch of two steps, and the fifth rollout of eight, end one.
    ends = [bool((r["terminated"] | r["truncated"]).all()) for r, _ in trainer.heard]
    assert ends == [number % 5 == 4 for number in range(len(ends))]
    # Actions are the env's own, which it numbers from -1; what is told earlier does not change.
    actions = np.concatenate([rollout["action"].ravel() for rollout, _ in trainer.heard])
    assert set(actions.tolist()) <= {-1, 0, 1}
    assert -1 in actions
    rewards = [rollout["reward"].tolist() for rollout, _ in trainer.heard]
    assert len({tuple(reward) for reward in rewards}) > 1


@pytest.mark.parametrize("where", ["train_step", "evaluate"])
@pytest.mark.covers("000-M8", "000-S3")
def test_an_epoch_taken_up_half_way_tells_its_last_hook_the_same(
    tmp_path: Path, where: str
) -> None:
    class Informed:
        def __init__(self, at: int) -> None:
            self.heard: list[Any] = []
            self.at = at

        def after_train_step(self, run: ludus.Run) -> None:
            if where == "train_step":
                run.interrupted = run.counters["opt_steps"] == self.at

        def after_evaluate(self, run: ludus.Run) -> None:
            if where == "evaluate":
                run.interrupted = self.at > 0

        def after_epoch(self, run: ludus.Run, info: dict[str, Any]) -> None:
            rollout = {name: np.asarray(info["rollout"][name]).tolist() for name in KEYS - {"info"}}
            exactness = trainer.done.tolist(), trainer.reward.tolist(), trainer.step
            told = run.counters["epoch"], info["num_model_updates"], rollout, exactness
            self.heard.append(told)

        def state_dict(self) -> dict[str, Any]:
            return {"heard": self.heard}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.heard = [tuple(one) for one in state["heard"]]

    def fit(name: str, at: int, **options: Any) -> Any:
        nonlocal trainer
        trainer = ludus.build_trainer(in_epochs())
        trainer.add(Informed(at))
        return trainer.callbacks["informed"], trainer.fit(root=str(tmp_path), name=name, **options)

    trainer: Any = None
    straight, _ = fit("straight", -1)
    assert fit("broken", 10)[1].status == "interrupted"
    resumed, result = fit("broken", -1, resume=True)
    assert result.exact
    assert [repr(one) for one in resumed.heard] == [repr(one) for one in straight.heard]
    assert len(resumed.heard) == 10


@pytest.mark.covers("000-M8")
def test_collect_rollouts_can_be_written_and_called_as_it_is_documented(tmp_path: Path) -> None:
    class Mine(DqnTrainer):
        given: list[bool]

        def collect_rollouts(self, obs: Any = None, add_to_buffer: bool = True) -> Any:
            self.given.append(obs is self.obs and add_to_buffer)
            return super().collect_rollouts(obs, add_to_buffer=add_to_buffer)

    trainer = Mine(in_epochs())
    trainer.given = []
    trainer.fit(root=str(tmp_path))
    assert trainer.given == [True] * 10


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.covers("000-M8")
def test_a_rollout_that_is_not_added_leaves_nothing_behind(n_step: int) -> None:
    trainer: Any = ludus.build_trainer(in_epochs(n_step=n_step))
    trainer.prepare(max_steps=None)
    try:
        rollout = trainer.collect_rollouts(trainer.obs, add_to_buffer=False)
        assert (rollout["num_steps"], trainer.replay_buffer.size) == (6, 0)
        trainer.collect_rollouts()
        # Of three steps in a row two were taken since.
        assert trainer.replay_buffer.size == (6 if n_step == 1 else 0)
        with pytest.raises(LudusError, match="do not show now; give it"):
            trainer.collect_rollouts(trainer.obs + 1)
    finally:
        trainer.close()
    ppo: Any = ludus.build_trainer(small("ppo"))
    ppo.prepare(max_steps=None)
    with pytest.raises(LudusError, match="leave add_to_buffer true"):
        ppo.collect_rollouts(add_to_buffer=False)
    ppo.close()


@pytest.mark.parametrize("changes", [{}, {"replay.prioritised": PRIORITISED}])
@pytest.mark.covers("000-M8", "000-S7")
def test_a_buffer_is_sampled_without_arguments(tmp_path: Path, changes: Any) -> None:
    trainer: Any = ludus.build_trainer(in_epochs(**changes))
    trainer.fit(root=str(tmp_path))
    assert len(trainer.replay_buffer.sample().rows) == trainer.config.batch_size
    assert len(trainer.replay_buffer.sample(3).rows) == 3
    layout = trainer.agent.layout
    unsaid = ludus.ReplayBuffer(layout, 10, seed=0)
    with pytest.raises(LudusError, match="made without a batch_size"):
        unsaid.sample()


@pytest.mark.covers("000-M8")
def test_a_rollout_is_sampled_without_arguments_pass_after_pass() -> None:
    layout = RowLayout((2,), np.dtype(np.float32), 1, 0)
    rollout = RolloutBuffer(4, 1, layout, seed=0, batch_size=2)
    for number in range(4):
        rollout.add(*(np.full(shape, number) for shape in ((1, 2), (1, 1), 1, 1, 1, (1, 2))))
    rollout.pack(rollout.actions.view(4, 1).clone())
    drawn = [rollout.sample().rows.ravel().tolist() for _ in range(4)]
    assert sorted(drawn[0] + drawn[1]) == sorted(drawn[2] + drawn[3]) == [0, 1, 2, 3]
    with pytest.raises(LudusError, match="made without a batch_size"):
        RolloutBuffer(4, 1, layout, seed=0).sample()


@pytest.mark.covers("000-S3")
def test_where_a_run_stands_can_be_read_by_the_documented_names(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(in_epochs())
    result = trainer.fit(root=str(tmp_path))
    assert (trainer.step, trainer.epoch, trainer.num_model_updates) == (60, 10, 30)
    assert trainer.num_episodes == 3 * 4
    assert len(trainer.episode_reward_list) == 12
    assert trainer.done.all()
    assert trainer.current_episode_reward.tolist() == [0, 0, 0]
    assert trainer.reward.shape == (3,)
    assert result.counters["opt_steps"] == 30
