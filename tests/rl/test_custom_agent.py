"""A script's own agent, recorder, evaluator, step processor and buffer, trained through ludus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import ludus
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError, LudusError
from ludus.envs.spaces import BoxActions, DiscreteActions, EnvSpec, MultiDiscreteActions
from ludus.rl.custom.agent import AgentAdapter
from ludus.rl.sampling.step_processor import OneStep
from tests.rl.small import small
from tests.rl.spying import in_steps
from tests.supervised.conftest import lines

LENGTH = 5


@register("env", "tests_corridor")
class Corridor(gymnasium.Env):
    """Five places in a row; the right end brings 1 and is the end, every step costs 0.01."""

    class Config(StrictConfig):
        """Nothing to choose."""

        kind: Literal["tests_corridor"]
        """This env."""

    observation_space = spaces.Box(0, LENGTH - 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, config: Config) -> None:
        self.place = self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return np.array([self.place], np.float32), {}

    def step(self, action: Any) -> Any:
        self.place = min(max(self.place + (1 if action == 1 else -1), 0), LENGTH - 1)
        self.time += 1
        is_there = self.place == LENGTH - 1
        seen = np.array([self.place], np.float32)
        return seen, 1.0 if is_there else -0.01, is_there, self.time >= 20, {}


class Tabular:
    """Q-learning in a table: the smallest agent that learns."""

    def __init__(self, *, warm_up: int = 0) -> None:
        self.values = np.zeros((LENGTH, 2))
        self.generator = np.random.default_rng(3)
        self.is_training = True
        self.warm_up = warm_up
        self.modes: list[str] = []

    def sample(self, obs: Any) -> Any:
        best = self.values[obs[:, 0].astype(int)].argmax(1)
        if not self.is_training:
            return best
        is_random = self.generator.random(len(obs)) < 0.3
        return np.where(is_random, self.generator.integers(0, 2, len(obs)), best)

    def opt(self, buffer: Any) -> Mapping[str, float] | None:
        if buffer.total < self.warm_up:
            return None
        batch = buffer.layout.split(buffer.sample().rows)
        places = batch.obs[:, 0].long().numpy()
        actions = batch.actions[:, 0].long().numpy()
        ahead = self.values[batch.next_obs[:, 0].long().numpy()].max(1)
        errors = batch.rewards.numpy() + batch.discounts.numpy() * ahead
        errors -= self.values[places, actions]
        np.add.at(self.values, (places, actions), 0.2 * errors)
        return {"td_error": float(np.abs(errors).mean())}

    def train(self) -> None:
        self.is_training = True
        self.modes.append("train")

    def eval(self) -> None:
        self.is_training = False
        self.modes.append("eval")


class Saved(Tabular):
    """One that can be brought back."""

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values = np.array(state["values"])
        self.generator.bit_generator.state = dict(state["generator"])


class Writing:
    """A recorder: only `write` is needed."""

    derived = ("records",)

    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, record: Any) -> None:
        self.records.append(record)


class Walking:
    """An evaluator: a float is enough."""

    derived = ("judged",)

    def __init__(self) -> None:
        self.judged: list[Any] = []

    def evaluate(self, agent: Any) -> float:
        self.judged.append((agent, agent.is_training))
        env, total = Corridor(Corridor.Config(kind="tests_corridor")), 0.0
        obs, _ = env.reset(seed=0)
        for _ in range(20):
            obs, reward, ended, _, _ = env.step(agent.sample(obs[None])[0])
            total += reward
            if ended:
                break
        return total


def config(**changes: Any) -> Any:
    changes = {
        "gamma": 0.9,
        "num_envs": 1,
        "learning_starts": 0,
        "steps.update_every_env_steps": 1,
        **changes,
    }
    changes = {"steps.max_opt_steps": 300, "steps.log_every_opt_steps": 50, **changes}
    changes = {"steps.evaluate_every_opt_steps": 100, "steps.keep_every_opt_steps": 150, **changes}
    return small("dqn").replace(env={"kind": "tests_corridor"}, **changes)


@pytest.mark.covers("004-M1", "004-M2", "004-S1")
def test_an_agent_a_recorder_and_an_evaluator_of_ones_own_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent, recorder, evaluator = Saved(), Writing(), Walking()
    trainer = ludus.Trainer.build(
        config(),
        env={"kind": "tests_corridor"},
        step_processor={"n_step": 2},
        replay_buffer={"capacity": 200, "on_device": False, "prioritised": None},
    )
    result = trainer.train(agent, recorder, evaluator)
    assert (result.status, result.counters["opt_steps"], result.exact) == (
        "finished",
        300,
        "expected",
    )
    # It has learned the way: three steps that cost, and the end.
    assert agent.values.argmax(1)[:4].tolist() == [1, 1, 1, 1]
    assert result.best["score"] == pytest.approx(0.97)
    assert [judged for judged, _ in evaluator.judged] == [agent] * 3
    assert not any(is_training for _, is_training in evaluator.judged)
    assert agent.modes == ["train", *["eval", "train"] * 3]
    opts = [record["opt_steps"] for record in recorder.records]
    assert opts == [50, 100, 150, 200, 250, 300]
    assert all(
        {"td_error", "env_steps", "fps"} <= record.flat().keys() for record in recorder.records
    )
    told = [record["eval/return_mean"] for record in recorder.records[1::2]]
    assert [record["eval_reward"] for record in recorder.records if "eval_reward" in record] == told
    assert told[-1] == pytest.approx(0.97)
    assert trainer.model_dir == Path(result.run_dir) / "models"
    assert {"best", "150", "300"} <= {path.name for path in trainer.model_dir.iterdir()}


@pytest.mark.covers("004-M1")
def test_a_trainer_is_built_by_the_kind_of_its_config() -> None:
    """From the base by name, with what the kind can be built of, and no more."""
    section = {"capacity": 200, "on_device": False, "prioritised": None}
    for kind in ("dqn", "iqn", "sac"):
        built = ludus.Trainer.build(small(kind).model_dump(), None, 3, section)
        assert type(built) is ludus.config.registry.find("trainer", kind)
        assert (built.config.n_step, built.config.replay.capacity) == (3, 200)
    for kind in ("ppo", "supervised"):
        assert type(ludus.Trainer.build(ludus.example(kind))) is ludus.config.registry.find(
            "trainer", kind
        )
        with pytest.raises(
            ConfigError, match=f"of kind '{kind}' is not built of step_processor, rep"
        ):
            ludus.Trainer.build(ludus.example(kind), None, 3, section)

    class Mine(ludus.Trainer):
        pass

    assert type(Mine.build(ludus.example("supervised"))) is Mine


@pytest.mark.covers("004-M1")
def test_the_contracts_of_what_a_script_may_give_are_exported() -> None:
    names = ("Agent", "Env", "Recorder", "Record", "StepProcessorBase", "ReplayBufferBase")
    for name in (*names, "BatchBase", "Step", "SyncSampler", "TrainerConfig"):
        assert isinstance(getattr(ludus, name), type) or name == "Env"
        assert name in dir(ludus)
    assert isinstance(Tabular(), ludus.Agent)
    assert not isinstance(object(), ludus.Agent)


@pytest.mark.parametrize("update_every_env_steps", [1, 3])
@pytest.mark.covers("004-M4")
def test_an_agent_of_ones_own_goes_through_the_same_steps(
    tmp_path: Path, update_every_env_steps: int
) -> None:
    """Act, learn, evaluate, keep the best, record, save, in that order, as the agents of ludus do."""
    events: list[str] = []

    class Noting(Saved):
        def sample(self, obs: Any) -> Any:
            if self.is_training:
                events.append("sample_and_push")
            return super().sample(obs)

        def opt(self, buffer: Any) -> Any:
            events.append("train_step 0")
            return super().opt(buffer)

    class Judging:
        scores = [2.0, 1.0, 3.0]

        def evaluate(self, agent: Any) -> tuple[float, dict[str, float]]:
            events.append("evaluate")
            return self.scores.pop(0), {"eval/mine": 1.0}

    class Hearing:
        def write(self, record: Any) -> None:
            events.append(f"write {record['opt_steps']}")

    changes = {
        "steps.max_opt_steps": 30,
        "steps.log_every_opt_steps": 4,
        "steps.evaluate_every_opt_steps": 10,
    }
    chosen = config(
        **changes,
        **{"steps.keep_every_opt_steps": 7, "steps.update_every_env_steps": update_every_env_steps},
    )
    trainer = ludus.StepRLTrainer.build(chosen)

    class Keeping:
        def before_train(self) -> None:
            events.append("before_train")
            keep = trainer.run.keep_model

            def kept(name: str, *more: Any) -> None:
                events.append(f"save {'best' if 'best' in name else name.removeprefix('models/')}")
                keep(name, *more)

            trainer.run.keep_model = kept

        def after_train(self) -> None:
            events.append("after_train")

    trainer.add(Keeping())
    trainer.train(Noting(), Hearing(), Judging(), root=str(tmp_path))
    expected = in_steps(1, 0, chosen.steps, [2.0, 1.0, 3.0])
    assert events == [e for e in expected if e not in ("before_step", "after_step")]


@pytest.mark.covers("004-M4")
def test_where_an_agent_skips_nothing_else_happens(tmp_path: Path) -> None:
    """No counter, no second evaluation, no end: it is only asked again when it is due again."""
    recorder, evaluator = Writing(), Walking()
    trainer = ludus.StepRLTrainer.build(
        config(**{"steps.max_opt_steps": 100, "steps.keep_every_opt_steps": 0})
    )

    class Sometimes(Saved):
        num_asked = 0

        def opt(self, buffer: Any) -> Any:
            self.num_asked += 1
            return None if self.num_asked % 3 else super().opt(buffer)

    agent = Sometimes()
    result = trainer.train(agent, recorder, evaluator, root=str(tmp_path))
    assert result.counters["opt_steps"] == 100
    assert agent.num_asked == result.counters["env_steps"] == 300
    assert [record["opt_steps"] for record in recorder.records] == [50, 100]
    assert len(evaluator.judged) == 1


@pytest.mark.covers("004-D3")
def test_an_agent_that_always_skips_is_told_so(tmp_path: Path) -> None:
    trainer = ludus.StepRLTrainer.build(config(**{"replay.capacity": 60}))
    with pytest.raises(LudusError, match="opt returned None 61 times in a row"):
        trainer.train(Tabular(warm_up=10**9), root=str(tmp_path))


def fit(agent: Any, root: Path, name: str, at: int, **options: Any) -> Any:
    class Interrupt:
        def after_collect(self, run: ludus.Run) -> None:
            run.interrupted = run.counters["env_steps"] == at

    trainer = ludus.StepRLTrainer.build(config())
    trainer.add(Interrupt())
    return trainer.train(agent, None, Walking(), root=str(root), name=name, **options)


@pytest.mark.covers("004-M2", "004-D6")
def test_an_agent_with_a_state_is_taken_up_exactly(tmp_path: Path) -> None:
    straight, resumed = Saved(warm_up=20), Saved(warm_up=20)
    ended = fit(straight, tmp_path, "straight", -1)
    # In the middle of a stretch between two records, and while the agent still skips.
    assert fit(Saved(warm_up=20), tmp_path, "broken", 130).status == "interrupted"
    assert fit(Saved(warm_up=20), tmp_path, "early", 10).status == "interrupted"
    result = fit(resumed, tmp_path, "broken", -1, resume=True)
    assert (result.status, result.exact, result.best) == ("finished", "expected", ended.best)
    assert resumed.values.tobytes() == straight.values.tobytes()
    assert lines(result.run_dir) == lines(ended.run_dir)
    early = Saved(warm_up=20)
    assert fit(early, tmp_path, "early", -1, resume=True).exact
    assert early.values.tobytes() == straight.values.tobytes()


@pytest.mark.covers("004-M2")
def test_an_agent_without_a_state_makes_a_run_that_says_it_is_not_exact(tmp_path: Path) -> None:
    result = fit(Tabular(), tmp_path, "stateless", -1)
    assert not result.exact
    assert "the agent Tabular has no state_dict" in result.inexact_because[0]
    about = lines(tmp_path / "stateless", "events.jsonl")[-1]
    assert about["inexact_because"] == list(result.inexact_because)


@pytest.mark.covers("004-M5")
def test_an_agent_that_can_save_writes_models_of_its_own_and_may_fail(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Saving(Saved):
        def save(self, directory: str) -> None:
            if directory.endswith("150"):
                raise OSError("no space left")
            (Path(directory) / "table.txt").write_text(str(self.values.tolist()))

    trainer = ludus.StepRLTrainer.build(config(**{"settings.display": "plain"}))
    result = trainer.train(Saving(), None, Walking(), root=str(tmp_path))
    kept = trainer.model_dir / "agent"
    assert (kept / "best" / "table.txt").exists()
    assert (kept / "300" / "table.txt").exists()
    assert result.status == "finished"
    out = capfd.readouterr().out
    assert "failed to save the agent in" in out
    assert "does not read" in out
    assert "network" in out


class Bare:
    """No agent at all."""


class Half(Tabular):
    """Can be saved, but not brought back."""

    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Bare(),), "Bare cannot be trained; an agent has sample"),
        ((Half(),), "Half has only one of state_dict and load_state_dict"),
        ((Tabular(), Bare()), "Bare is not a recorder: it has no write"),
    ],
)
def test_what_cannot_be_used_is_refused_before_work(
    tmp_path: Path, arguments: Any, message: str
) -> None:
    trainer = ludus.StepRLTrainer.build(config())
    with pytest.raises(ConfigError, match=message):
        trainer.train(*arguments, root=str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": Corridor}, "env is a section of the config, not a type; register"),
        (
            {"step_processor": Bare()},
            "Bare is not a step processor: it lacks begin, process",
        ),
        (
            {"replay_buffer": Bare()},
            "Bare is not a replay buffer: it lacks push, sample",
        ),
    ],
)
def test_what_cannot_be_built_with_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ludus.StepRLTrainer.build(config(), **options)


WHOLE = "return an array of shape (1,) of whole numbers"


@pytest.mark.parametrize("method", ["sample", "act_greedy"])
@pytest.mark.parametrize(
    ("actions", "told"),
    [
        (np.zeros((1, 2)), f"returned actions of shape (1, 2) and dtype float64 for 1 envs; {WHOLE}"),
        (np.zeros(1), f"returned actions of shape (1,) and dtype float64 for 1 envs; {WHOLE}"),
        (None, f"returned actions of shape () and dtype object for 1 envs; {WHOLE}"),
        ([[1], [1, 2]], "returned a list that is no array: "),
        (torch.ones(1, requires_grad=True), "returned a Tensor that is no array: "),
        ([2], "returned 2 for env 0, which is not one of its actions; return actions from 0 to 1"),
        (np.array([-1]), "returned -1 for env 0, which is not one of its actions"),
    ],
    ids=str,
)  # fmt: skip
def test_actions_that_the_env_does_not_take_are_told_with_the_method(
    tmp_path: Path, method: str, actions: Any, told: str
) -> None:
    agent = Saved()
    setattr(agent, method, lambda obs: actions)
    trainer = ludus.StepRLTrainer.build(config(**{"evaluation.envs": 1}))
    with pytest.raises(LudusError) as caught:
        trainer.train(agent, root=str(tmp_path))
    assert str(caught.value).startswith(f"Saved.{method} {told}")


def test_numbers_of_an_action_that_are_not_finite_or_out_of_range_are_told() -> None:
    low, obs = np.array([-1, -2], np.float32), np.zeros((1, 2), np.float32)
    box, multi = BoxActions(low, -low), MultiDiscreteActions((2, 3), (0, 5))
    for action, given, told in (
        (box, [[0.0, np.nan]], "nan for env 0, which is not one of its actions; .* -2.0 to 2.0"),
        (box, [[1.5, 0.0]], "1.5 for env 0, .* from -1.0 to 1.0"),
        (
            BoxActions(low - np.inf, low + np.inf),
            [[np.inf, 0.0]],
            "inf for env 0, which is not one",
        ),
        (box, [[1, 0]], r"dtype int64 for 1 envs; return an array of shape \(1, 2\) of floats"),
        (multi, [[0, 8]], "8 for env 0, .* from 5 to 7"),
        (multi, [[0, 6], [0, 6]], r"shape \(2, 2\) .* return an array of shape \(1, 2\)"),
    ):
        agent = Saved()
        agent.sample = lambda obs, given=given: np.array(given)  # type: ignore[method-assign]
        adapter = AgentAdapter(agent, spec(action), max_skips=1)
        with pytest.raises(LudusError, match=f"Saved.sample returned .*{told}"):
            adapter.act(obs, None, 0)


def spec(action: Any, *, has_masks: bool = False) -> EnvSpec:
    return EnvSpec((2,), np.dtype(np.float32), action, has_masks, "x")


def test_an_agent_gets_copies_and_what_it_returned_is_copied() -> None:
    """What it does to them later changes neither the env's arrays nor what is learned from."""
    agent, obs = Saved(), np.zeros((2, 2), np.float32)
    kept = np.zeros(2, np.int64)

    def sample(seen: Any) -> Any:
        seen += 1
        return kept

    agent.sample = sample  # type: ignore[method-assign]
    actions = AgentAdapter(agent, spec(DiscreteActions(2, 0)), max_skips=1).act(obs, None, 0)
    kept[:] = 1
    assert (obs.sum(), actions.sum()) == (0, 0)


def test_an_agent_gets_the_masks_of_an_env_that_has_them_and_must_obey() -> None:
    class Masked(Saved):
        def sample(self, obs: Any, masks: Any) -> Any:
            self.seen = masks
            return self.choose(masks)

    obs = np.zeros((2, 2), np.float32)
    for action, width in ((DiscreteActions(3, 4), 3), (MultiDiscreteActions((2, 3), (1, 4)), 5)):
        agent: Any = Masked()
        adapter = AgentAdapter(agent, spec(action, has_masks=True), max_skips=1)
        masks = np.zeros((2, width), bool)
        masks[:, -1] = masks[:, 0] = True
        right = [6, 6] if width == 3 else [[1, 6], [1, 6]]
        agent.choose = lambda masks, right=right: np.array(right)
        assert adapter.act(obs, masks, 0).tolist() == right
        assert agent.seen is not masks
        assert (agent.seen == masks).all()
        wrong = [6, 5] if width == 3 else [[1, 6], [1, 5]]
        agent.choose = lambda masks, wrong=wrong: np.array(wrong)
        with pytest.raises(LudusError, match="returned 5 for env 1, which its mask forbids"):
            adapter.act(obs, masks, 0)
    with pytest.raises(
        ConfigError, match=r"Saved.sample takes observations alone; .* sample\(obs, m"
    ):
        AgentAdapter(Saved(), spec(DiscreteActions(3, 0), has_masks=True), max_skips=1)


@pytest.mark.parametrize("record", [True, 0.5, {"loss": "low"}, [1.0]])
def test_what_opt_returns_is_numbers_by_name_or_none(tmp_path: Path, record: Any) -> None:
    agent = Saved()
    agent.opt = lambda buffer: record  # type: ignore[method-assign]
    with pytest.raises(LudusError, match=r"Saved.opt returned a .*; return numbers by name, such"):
        ludus.StepRLTrainer.build(config()).train(agent, root=str(tmp_path))


def test_an_agent_of_ones_own_is_not_judged_in_another_process(tmp_path: Path) -> None:
    changes = {"evaluation.asynchronous": True, "evaluation.timeout_seconds": 60.0}
    trainer = ludus.StepRLTrainer.build(config(**changes))
    with pytest.raises(ConfigError, match="another process cannot build an agent"):
        trainer.train(Saved(), root=str(tmp_path))


@pytest.mark.covers("004-M1", "004-M6")
def test_a_step_processor_and_a_buffer_of_ones_own_are_used_and_survive(tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        trainer: Any = ludus.StepRLTrainer.build(config())
        trainer.prepare(max_steps=None)
        layout = trainer.agent.layout
        trainer.close()

        class Doubling(OneStep):
            """Pushes every reward twice as large."""

            def process(self, actions: Any, env: Any, buffer: Any) -> None:
                env.rewards *= 2
                super().process(actions, env, buffer)
                env.rewards /= 2

        buffer = ludus.ReplayBuffer(layout, 50, seed=9, batch_size=4)
        return Doubling(1, layout, 0.9), buffer

    def run(name: str, at: int, **options: Any) -> Any:
        class Interrupt:
            def after_train_step(self, run: ludus.Run) -> None:
                run.interrupted = run.counters["opt_steps"] == at

        processor, buffer = made()
        trainer = ludus.StepRLTrainer.build(config(), None, processor, buffer)
        trainer.add(Interrupt())
        agent = Saved()
        return agent, buffer, trainer.train(agent, root=str(tmp_path), name=name, **options)

    agent, buffer, result = run("straight", -1)
    assert (buffer.size, result.exact) == (50, "expected")
    rewards = buffer.layout.split(buffer._rows).rewards
    assert set(rewards.numpy().round(3).tolist()) <= {np.float32(-0.02).round(3).item(), 2.0}
    assert run("broken", 200)[2].status == "interrupted"
    again, _, resumed = run("broken", -1, resume=True)
    assert resumed.exact
    assert again.values.tobytes() == agent.values.tobytes()


def test_spaces_of_all_kinds_have_a_place_in_the_buffer() -> None:
    low = np.zeros(3, np.float32)
    for action, width in ((BoxActions(low, low + 1), 3), (MultiDiscreteActions((2, 3), (0, 0)), 2)):
        assert AgentAdapter(Saved(), spec(action), max_skips=1).layout.action_width == width


def test_an_evaluator_that_rebuilds_agents_cannot_judge_one_of_ones_own(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(config())
    async_evaluator = ludus.AsyncEvaluator(small("dqn"))
    with pytest.raises(ConfigError, match="cannot judge an agent of your own"):
        trainer.train(Tabular(), evaluator=async_evaluator, root=str(tmp_path))
