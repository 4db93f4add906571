"""What a script may ask of an RLTrainer; the order of its loop is in test_orders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ludus
from ludus import Logger
from ludus.core.errors import ConfigError, LudusError
from ludus.rl.evaluation.evaluator import EpisodeEvaluator, EvaluationTask
from ludus.seeds import derive
from tests.rl.known_problems import REWARDS_CA, learning, observation, problem
from tests.rl.random_walks import RandomWalk, walk_config
from tests.rl.small import small
from tests.rl.spying import Spy
from tests.supervised.conftest import lines

KINDS = ("dqn", "iqn", "sac", "ppo")
EPOCHS = {
    "max_env_steps": 60,
    "log_every_epochs": 1,
    "evaluate_every_epochs": 3,
    "keep_every_epochs": 0,
    "steps_per_epoch": 2,
    "updates_per_env_step": 1.0,
    "max_opt_steps": None,
}


@pytest.mark.covers("000-M1", "004-M1")
def test_the_named_concepts_exist_and_cost_nothing_until_used() -> None:
    """`import ludus` alone brings in neither torch nor gymnasium."""
    names = ("RLTrainer", "StepRLTrainer", "SyncSampler", "AsyncEvaluator", "ReplayBuffer")
    for name in (*names, "Scheduler", "Evaluator", "Logger", "Storage", "TrainerConfig"):
        assert isinstance(getattr(ludus, name), type)
        assert name in dir(ludus)
    code = "import ludus, sys; print([m for m in ('torch', 'gymnasium') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.covers("000-M3")
@pytest.mark.parametrize("schedule", ["steps", "epochs"])
def test_a_logger_is_set_and_the_length_is_given_to_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    """The config describes an agent's networks, so no model is set."""
    monkeypatch.chdir(tmp_path)
    epochs = EPOCHS if schedule == "epochs" else None
    trainer: Any = ludus.build_trainer(small("dqn", counted_in=schedule, epochs=epochs))
    logger = Logger({"backends": []})
    trainer.set_logger(logger)
    result = trainer.fit(max_steps=30)
    assert trainer.logger is logger
    assert result.counters["opt_steps"] == 30
    assert trainer.num_train_steps == 30
    assert (tmp_path / "runs" / trainer.config.name / "run.json").exists()


@pytest.mark.covers("000-M4", "000-D12")
def test_the_argument_wins_else_the_config_decides(tmp_path: Path) -> None:
    config = small("dqn")
    by_config = ludus.build_trainer(config).fit(root=str(tmp_path), name="config")
    by_argument = ludus.build_trainer(config).fit(
        num_train_steps=31, root=str(tmp_path), name="argument"
    )
    assert by_config.counters["opt_steps"] == config.steps.max_opt_steps
    assert by_argument.counters["opt_steps"] == 31
    assert ludus.read_config(f"{by_argument.run_dir}/config.yaml").steps.max_opt_steps == 31
    # What the caller holds is as it was.
    assert config == small("dqn")
    with pytest.raises(ConfigError, match="max_steps=9 and num_train_steps=8"):
        ludus.build_trainer(config).fit(max_steps=9, num_train_steps=8, root=str(tmp_path))


@pytest.mark.covers("000-M4")
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_trainer_state_is_taken_up(tmp_path: Path, kind: str) -> None:
    """fit(trainer_state=...) goes on from there: as one run that was never interrupted."""
    length = "max_env_steps" if kind == "ppo" else "steps.max_opt_steps"
    # Both schedules of a run depend on its length: hold them still.
    steady = {"kind": "constant", "warmup_steps": 0}
    changes: dict[str, Any] = {"learning_rate_schedule": steady, "engine": "tape"}
    if kind == "ppo":
        changes["clip.schedule"] = steady
    elif kind != "sac":
        changes["exploration.schedule"] = steady

    def trainer(steps: int) -> Any:
        return ludus.build_trainer(small(kind, **changes, **{length: steps}))

    some, all_of_it = (96, 192) if kind == "ppo" else (12, 24)
    first, second, straight = trainer(some), trainer(all_of_it), trainer(all_of_it)
    first.fit(root=str(tmp_path), name="first")
    result = second.fit(None, first.state_dict(), root=str(tmp_path), name="second")
    straight.fit(root=str(tmp_path), name="straight")
    assert second.run.counters == straight.run.counters
    for name, tensor in straight.agent.weights().items():
        assert tensor.equal(second.agent.weights()[name])
    assert list(result.inexact_because) == ["it began with the state of another run"]


@pytest.mark.covers("000-M6")
def test_obs_buffer_epoch_and_end_can_be_read(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    class Watching:
        def before_epoch(self) -> None:
            with trainer.terminal_display:
                pass
            seen.append((trainer.epoch, trainer.train_end, trainer.obs.copy()))

    config = small("dqn", counted_in="epochs", epochs=EPOCHS)
    trainer: Any = ludus.build_trainer(config)
    trainer.add(Watching())
    trainer.fit(root=str(tmp_path))
    assert [(epoch, is_over) for epoch, is_over, _ in seen] == [(n, False) for n in range(10)]
    assert all(obs.shape == (3, 4) for _, _, obs in seen)
    assert not np.array_equal(seen[0][2], seen[1][2])
    assert (trainer.epoch, trainer.train_end, trainer.async_eval) == (10, True, False)
    assert isinstance(trainer.replay_buffer, ludus.ReplayBuffer)
    assert trainer.replay_buffer.size == 60
    assert trainer.config.epochs.evaluate_every_epochs == 3
    assert trainer.num_train_steps == 60
    asynchronous: Any = ludus.build_trainer(
        config.replace(**{"evaluation.asynchronous": True, "evaluation.timeout_seconds": 60.0})
    )
    asynchronous.prepare(max_steps=None)
    assert asynchronous.async_eval


@pytest.mark.covers("000-M7")
def test_hooks_can_be_written_in_a_subclass_and_what_they_need_is_there(
    tmp_path: Path,
) -> None:
    """The rollout and the number of updates are on the trainer."""
    from ludus.rl.agents.ppo import PpoTrainer

    class Mine(PpoTrainer):
        heard: list[Any]

        def before_train(self) -> None:
            self.heard = [dict(self.rollout_data)]

        def after_epoch(self) -> None:
            self.heard.append((self.rollout_data["num_steps"], self.get_num_updates()))

    trainer = Mine(small("ppo"))
    trainer.fit(root=str(tmp_path))
    assert trainer.heard == [{}, *[(24, 6)] * 6]


@pytest.mark.covers("000-M9")
@pytest.mark.parametrize(("freq", "at"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4]), (5, [5]), (0, [])])
def test_evaluations_count_epochs_and_leave_out_the_first(
    tmp_path: Path, freq: int, at: list[int]
) -> None:
    spy = Spy(small("ppo", evaluate_every_epochs=freq))
    spy.run(tmp_path)
    evaluated = [r.counters["epoch"] for r in spy.records if "eval/return_mean" in r.scalars]
    assert evaluated == at


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.covers("000-M10")
def test_an_rl_trainer_is_the_trainer_that_its_config_names(tmp_path: Path, kind: str) -> None:
    from ludus.core import Trainer

    config = small(kind)
    trainer: Any = ludus.RLTrainer(config)
    assert isinstance(trainer, Trainer)
    assert type(trainer) is type(ludus.build_trainer(config))
    trainer.fit(root=str(tmp_path), name="one")
    other: Any = ludus.build_trainer(config)
    other.fit(root=str(tmp_path), name="other")
    for name, tensor in other.agent.weights().items():
        assert tensor.equal(trainer.agent.weights()[name])
    # The command line can take it up, for it is what the config alone builds.
    assert json.loads((tmp_path / "one" / "run.json").read_text())["origin"] == "config"


@pytest.mark.parametrize("kind", ["dqn", "ppo"])
@pytest.mark.covers("000-M10")
def test_a_subclass_of_rl_trainer_trains_any_agent(tmp_path: Path, kind: str) -> None:
    class Mine(ludus.RLTrainer):  # type: ignore[misc, name-defined]
        """Counts its updates."""

        num_seen = 0

        def train_step(self, batch: Any, batch_idx: int) -> None:
            self.num_seen += 1
            super().train_step(batch, batch_idx)

    trainer = Mine(small(kind))
    assert isinstance(trainer, Mine)
    assert type(trainer).__name__ == "Mine"
    result = trainer.fit(root=str(tmp_path))
    assert trainer.num_seen == result.counters["opt_steps"] > 0
    assert (
        json.loads((tmp_path / trainer.config.name / "run.json").read_text())["origin"] == "script"
    )


@pytest.mark.covers("000-M10")
def test_a_config_that_is_not_of_an_agent_is_refused_by_rl_trainer() -> None:
    with pytest.raises(ConfigError, match=r"kind 'supervised'; agents are .*dqn.*build_trainer"):
        ludus.RLTrainer(ludus.example("supervised"))


def test_a_subclass_of_another_family_of_agents_is_told_to_derive_from_rl_trainer() -> None:
    class Mine(ludus.StepRLTrainer):  # type: ignore[misc, name-defined]
        """Adds to trainers with a replay buffer."""

    with pytest.raises(ConfigError, match="which the trainer of kind 'ppo' is not; derive it from"):
        Mine(small("ppo"))


def body(inputs: int = 4) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.covers("000-M3", "000-M10")
def test_a_network_of_ones_own_is_what_learns(tmp_path: Path, kind: str) -> None:
    """It begins with its own weights, ends as what the agent acts by, and the run is the script's."""
    inputs = 3 if kind == "sac" else 4
    network, untouched = body(inputs), body(inputs)
    trainer: Any = ludus.build_trainer(small(kind))
    trainer.set_model(network)
    begun: list[Any] = []

    class First:
        def before_train(self) -> None:
            begun.extend(p.clone() for p in network.parameters())

    trainer.add(First())
    result = trainer.fit(root=str(tmp_path))
    assert trainer.model is network
    assert all(a.equal(b) for a, b in zip(begun, untouched.parameters(), strict=True))
    assert not all(a.equal(b) for a, b in zip(begun, network.parameters(), strict=True))
    weights = trainer.agent.weights()
    learned = [weights[name] for name in weights if ".body." in name]
    assert all(a.equal(b) for a, b in zip(learned, network.parameters(), strict=True))
    assert result.status == "finished"
    assert json.loads((Path(result.run_dir) / "run.json").read_text())["origin"] == "script"


def test_a_run_with_a_network_of_ones_own_is_taken_up_exactly(tmp_path: Path) -> None:
    class Interrupt:
        def __init__(self, at: int) -> None:
            self.at = at

        def after_train_step(self, run: Any) -> None:
            run.interrupted = run.counters["opt_steps"] == self.at

    def fit(name: str, at: int, **options: Any) -> Any:
        trainer: Any = ludus.build_trainer(small("ppo", shared_body=False))
        trainer.set_model(ludus.Model(body()))
        trainer.add(Interrupt(at))
        return trainer, trainer.fit(root=str(tmp_path), name=name, **options)

    straight, _ = fit("straight", -1)
    assert fit("broken", 10)[1].status == "interrupted"
    resumed, result = fit("broken", -1, resume=True)
    assert result.exact
    for name, tensor in straight.agent.weights().items():
        assert tensor.equal(resumed.agent.weights()[name])


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (object(), "set_model takes a torch network or a ludus.Model, not a object"),
        (nn.Linear(7, 3), r"observations of shape \(B, 4\) of CartPole-v1 .* it fails: mat1"),
        (nn.Flatten(0), r"for B = 2 it returns a tensor of shape \(8,\)"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_in_a_sentence(
    tmp_path: Path, network: Any, message: str
) -> None:
    trainer = ludus.build_trainer(small("dqn"))

    def train() -> None:
        trainer.set_model(network)
        trainer.fit(root=str(tmp_path))

    with pytest.raises(ConfigError, match=message):
        train()
    assert not list(tmp_path.iterdir())


def test_a_network_of_ones_own_is_not_judged_in_another_process(tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small("dqn", **{"evaluation.asynchronous": True}))
    trainer.set_model(body())
    with pytest.raises(ConfigError, match="cannot build the network given to set_model; register"):
        trainer.fit(root=str(tmp_path))


@pytest.mark.covers("000-M11", "000-D9", "000-D13")
def test_an_rl_trainer_works_and_its_best_is_by_evaluation(tmp_path: Path) -> None:
    """Not by what exploring brought; and an episode's return is its sum."""
    changes = {"steps.evaluate_every_opt_steps": 100, "evaluation.episodes": 20}
    trainer: Any = ludus.build_trainer(learning("dqn", problem("tests_choice", 3), **changes))
    result = trainer.fit(root=str(tmp_path))
    evaluated = [line for line in lines(result.run_dir) if "eval/return_mean" in line]
    assert len(evaluated) == 5
    score = evaluated[-1]["eval/return_mean"]
    # Each episode brings the best of its context, 1.0 or 0.6, once in its three steps.
    assert score == pytest.approx(np.round(score * 20 / 0.2) * 0.2 / 20)
    assert REWARDS_CA.max(1).min() < score < REWARDS_CA.max()
    assert evaluated[-1]["eval/length_mean"] == 3
    assert result.best["metric"] == "eval/return_mean"
    assert result.best["score"] == max(line["eval/return_mean"] for line in evaluated)
    assert evaluated[-1]["rollout/ep_rew_mean"] < score
    assert trainer.agent.act_greedy(np.stack([observation(0)]), None).tolist() == [7]


@pytest.mark.covers("000-D1")
def test_no_learning_is_owed_before_it_starts_and_all_of_it_then(tmp_path: Path) -> None:
    spy = Spy(small("dqn", counted_in="epochs", epochs={**EPOCHS, "steps_per_epoch": 1}))
    spy.run(tmp_path)
    opts = [record.counters.get("opt_steps", 0) for record in spy.records]
    assert opts[:9] == [0, 0, 0, 0, 0, 0, 21, 24, 27]


@pytest.mark.covers("000-D2")
def test_env_steps_are_counted_once(tmp_path: Path) -> None:
    for kind in KINDS:
        trainer: Any = ludus.build_trainer(small(kind))
        result = trainer.fit(root=str(tmp_path), name=kind)
        assert result.counters["env_steps"] == trainer.sampler.num_env_steps
        assert trainer.sampler.num_env_steps % 3 == 0
        if kind != "ppo":
            assert trainer.replay_buffer.total == trainer.sampler.num_env_steps


@pytest.mark.covers("000-D8")
def test_a_resumed_run_acts_on_what_its_envs_show(tmp_path: Path) -> None:
    """Interrupted in the middle of episodes; the envs, not only the observations, come back."""

    class Interrupt:
        def after_train_step(self, run: Any) -> None:
            run.interrupted = run.counters["opt_steps"] == 10

    config = small("dqn").replace(env=walk_config(length=50))
    broken: Any = ludus.build_trainer(config)
    broken.add(Interrupt(), name="interrupt")
    assert broken.fit(root=str(tmp_path)).status == "interrupted"
    expected = broken.env.obs.copy()
    resumed: Any = ludus.build_trainer(config)
    heard: list[Any] = []

    class Look:
        derived = ("heard",)

        def before_train_step(self) -> None:
            if not heard:
                heard.append(resumed.env.obs.copy())
                places = [slot.env.place.astype(np.float32) for slot in resumed.env._slots]
                heard.append(np.stack(places))

    resumed.add(Look(), name="interrupt")
    assert resumed.fit(root=str(tmp_path), resume=True).exact
    assert len(heard) == 2
    assert np.array_equal(heard[0], heard[1])
    assert heard[0].shape == expected.shape


@pytest.mark.covers("000-D10")
def test_every_episode_is_whole_and_counted_once() -> None:
    """Envs that end at different times, fewer envs than episodes."""

    class Policy:
        def act_greedy(self, obs: Any, masks: Any) -> Any:
            return np.full(len(obs), -1)

    evaluator = EpisodeEvaluator(
        EvaluationTask(walk_config(length=7), num_episodes=5, seed=0, num_envs=3)
    )
    score, record = evaluator.evaluate(Policy())
    returns = []
    for index in range(5):
        env = RandomWalk(walk_config(length=7))
        env.reset(seed=derive(0, "eval/0", index) % 2**31)
        returns.append(sum(env.step(-1)[1] for _ in range(7)))
    assert score == pytest.approx(np.mean(returns))
    assert record["eval/return_std"] == pytest.approx(np.std(returns))
    assert record["eval/length_mean"] == 7


@pytest.mark.covers("000-D11")
def test_no_evaluation_begins_like_a_training_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: dict[str, set[int]] = {"train": set(), "evaluate": set()}
    now = ["train"]
    reset = RandomWalk.reset

    def watched(self: Any, *, seed: int | None = None, options: Any = None) -> Any:
        assert seed is not None
        seeds[now[0]].add(seed)
        return reset(self, seed=seed, options=options)

    class Phase:
        def before_evaluate(self) -> None:
            now[0] = "evaluate"

        def after_evaluate(self) -> None:
            now[0] = "train"

    monkeypatch.setattr(RandomWalk, "reset", watched)
    trainer = ludus.build_trainer(small("dqn").replace(env=walk_config(length=5)))
    trainer.add(Phase())
    trainer.fit(root=str(tmp_path))
    assert seeds["evaluate"] >= {derive(0, "eval/0", index) % 2**31 for index in range(2)}
    assert len(seeds["train"]) > 20
    assert not seeds["train"] & seeds["evaluate"]


@pytest.mark.covers("000-D12")
def test_seed_0_is_a_seed_like_any_other(tmp_path: Path) -> None:
    def weights(seed: int, name: str) -> Any:
        trainer: Any = ludus.build_trainer(small("dqn", seed=seed))
        trainer.fit(root=str(tmp_path), name=name)
        return json.dumps({k: v.tolist() for k, v in trainer.agent.weights().items()})

    first, again, other = weights(0, "a"), weights(0, "b"), weights(1, "c")
    assert first == again
    assert first != other


def test_a_state_of_another_agent_is_refused(tmp_path: Path) -> None:
    first: Any = ludus.build_trainer(small("sac"))
    first.fit(root=str(tmp_path), name="first")
    with pytest.raises(LudusError, match="build the trainer"):
        ludus.build_trainer(small("dqn")).fit(
            trainer_state=first.state_dict(), root=str(tmp_path), name="second"
        )


@pytest.mark.covers("000-S11", "000-D4")
def test_an_evaluation_beside_training_is_heard_at_the_next_and_survives_a_pause(
    tmp_path: Path,
) -> None:
    """What it finds is what an evaluation in place finds, tagged with where it was launched."""

    class Pause:
        def __init__(self, at: int) -> None:
            self.at = at

        def after_train_step(self, run: Any) -> None:
            run.interrupted = run.counters["opt_steps"] == self.at

    def fit(name: str, at: int, *, async_evaluator: bool, resume: bool = False) -> Any:
        trainer: Any = ludus.build_trainer(
            small("dqn", **{"evaluation.asynchronous": async_evaluator})
        )
        trainer.add(Pause(at))
        return trainer, trainer.fit(root=str(tmp_path), name=name, resume=resume)

    in_place, ended = fit("in_place", -1, async_evaluator=False)
    # The evaluation launched at 7 is under way.
    assert fit("beside", 10, async_evaluator=True)[1].status == "interrupted"
    trainer, result = fit("beside", -1, async_evaluator=True, resume=True)
    assert (result.status, result.exact) == ("finished", "expected")
    for name, tensor in in_place.agent.weights().items():
        assert tensor.equal(trainer.agent.weights()[name])
    assert result.best["score"] == ended.best["score"]
    assert result.best["counters"] == ended.best["counters"]
    found = [line for line in lines(result.run_dir) if "eval/return_mean" in line]
    assert [line["opt_steps"] for line in found] == [7, 14, 21]
    expected = [line for line in lines(ended.run_dir) if "eval/return_mean" in line]
    for name in ("eval/return_mean", "eval/return_std", "eval/length_mean"):
        assert [line[name] for line in found] == [line[name] for line in expected]


def test_an_attribute_module_of_a_network_is_only_a_part_of_it() -> None:
    from ludus.rl.custom.body import as_network

    whole = torch.nn.Module()
    whole.module = torch.nn.Linear(2, 2)
    assert as_network(whole) is whole
    assert as_network(ludus.Model(whole)) is whole
