"""One sentence with a remedy for every mistake in an RL config, before anything is made of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus.core.errors import LudusError
from ludus.envs.errors import EnvError
from tests.command_line import Ludus, in_process
from tests.rl.known_problems import problem
from tests.rl.random_walks import Odd, walk_config
from tests.rl.small import PRIORITISED, small
from tests.supervised.conftest import lines

PENDULUM = "Pendulum-v1"
CARTPOLE = "CartPole-v1"


def epochs(**changes: Any) -> dict[str, Any]:
    """Return a section `epochs` of a small run of an agent with a replay buffer."""
    whole = {
        "max_env_steps": 60, "log_every_epochs": 1, "evaluate_every_epochs": 3,
        "keep_every_epochs": 0, "steps_per_epoch": 2,
        "updates_per_env_step": 1.0, "max_opt_steps": None,
    }  # fmt: skip
    return whole | changes


def warm_up(steps: int) -> dict[str, Any]:
    return {"kind": "constant", "warmup_steps": steps}


FALLING = {"kind": "linear", "warmup_steps": 0, "total_steps": None}

BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown env": (
        "dqn",
        {"env.id": "CartPol-v1"},
        r"'env': no env has the id 'CartPol-v1'\. Did you mean 'CartPole-v1'\?",
    ),
    "env of another package": ("ppo", {"env.id": "Zork-v0"}, "'Zork-v0'.*--plugin its_module"),
    "unknown env kind": ("dqn", {"env.kind": "gymnasiom"}, "Did you mean 'gymnasium'"),
    "env kwargs": ("dqn", {"env.kwargs": {"gravty": 1.0}}, r"kwargs\.gravty is no argument.*remove"),
    "continuous env for dqn": (
        "dqn",
        {"env.id": PENDULUM},
        r"'dqn' chooses one action from a list, .*Pendulum-v1 are continuous \(1 numbers\); use sac or ppo",
    ),
    "continuous env for iqn": ("iqn", {"env.id": PENDULUM}, "'iqn' chooses one action.*use sac or ppo"),
    "discrete env for sac": (
        "sac",
        {"env.id": CARTPOLE},
        "'sac' chooses continuous actions, but those of CartPole-v1 are one of 2; use dqn, iqn or ppo",
    ),
    "two choices for dqn": (
        "dqn",
        {"env": problem("tests_pair").model_dump()},
        "tests_pair are 2 choices at once; use ppo",
    ),
    "images for sac": (
        "sac",
        {"env": problem("tests_images").model_dump()},
        "'sac' works on rows of numbers, but tests_images shows images; use ppo",
    ),
    "batch over capacity": (
        "dqn",
        {"batch_size": 61},
        "'batch_size' is 61, more than replay.capacity 60 can hold; make it smaller",
    ),
    "never learns": (
        "dqn",
        {"counted_in": "epochs", "steps": None, "epochs": epochs(max_env_steps=50), "learning_starts": 50},
        "'learning_starts' is 50, but the run ends at epochs.max_env_steps 50.*lower the first",
    ),
    "never evaluates": (
        "dqn",
        {"steps.evaluate_every_opt_steps": 25},
        "'steps.evaluate_every_opt_steps' is 25, but steps.max_opt_steps is 24.*lower it, or set 0 for never",
    ),
    "never records": ("sac", {"steps.log_every_opt_steps": 25}, "'steps.log_every_opt_steps' is 25.*set 0"),
    "never saves": ("iqn", {"steps.keep_every_opt_steps": 25}, "'steps.keep_every_opt_steps' is 25.*set 0"),
    "never evaluates an epoch": (
        "ppo",
        {"evaluate_every_epochs": 6},
        "'evaluate_every_epochs' is 6, but the first epoch is never evaluated and the number of"
        " the others is 5",
    ),
    "never saves an epoch": ("ppo", {"keep_every_epochs": 7}, "'keep_every_epochs' is 7"),
    "minibatches": (
        "ppo",
        {"minibatch_size": 5},
        r"'minibatch_size' is 5, which does not divide the 24 steps .*; try (4|6)",
    ),
    "no envs": ("dqn", {"num_envs": 0}, "num_envs"),
    "no rollout": ("ppo", {"rollout_steps": 0}, "rollout_steps"),
    "no steps": ("dqn", {"steps.max_opt_steps": 0}, "max_opt_steps"),
    "no section": ("dqn", {"steps": None}, "'counted_in' is steps, but the section 'steps' is null; fill"),
    "no epochs": (
        "sac",
        {"counted_in": "epochs", "steps": None},
        "'counted_in' is epochs, but the section 'epochs' is null; fill it in as `ludus new dqn-mountain",
    ),
    "a section that is not read": (
        "dqn",
        {"epochs": epochs()},
        "'epochs' is filled in, but 'counted_in' is steps, which reads 'steps' alone; set 'epochs' to null",
    ),
    "the other section that is not read": (
        "iqn",
        {"counted_in": "epochs", "epochs": epochs()},
        "'steps' is filled in, but 'counted_in' is epochs.*; set 'steps' to null",
    ),
    "too many updates for the env steps": (
        "dqn",
        {"counted_in": "epochs", "steps": None, "epochs": epochs(max_opt_steps=61)},
        "'epochs.max_opt_steps' is 61, but epochs.max_env_steps 60 makes 60 optimisation steps",
    ),
    "too many updates for the rollouts": (
        "ppo", {"max_opt_steps": 37},
        "'max_opt_steps' is 37, but max_env_steps 140 makes 36",
    ),
    "epochs where there are none": (
        "sac",
        {"settings.checkpoint.every_epochs": 3},
        "'settings.checkpoint.every_epochs' is 3, but a run counted in steps has no epochs; set it to 0",
    ),
    "a timeout of nothing": (
        "ppo",
        {"evaluation.timeout_seconds": 60.0},
        "'evaluation': 'timeout_seconds' is 60, which means nothing where 'asynchronous' is false",
    ),
    "no timeout": (
        "ppo",
        {"evaluation.asynchronous": True},
        "'evaluation': 'timeout_seconds' is null, but 'asynchronous' is true; set it",
    ),
    "a delta without patience": (
        "dqn", {"evaluation.min_delta": 1.0}, "'min_delta' is 1, which has no effect where 'patience'",
    ),
    "a goal that nothing is measured by": (
        "dqn",
        {"evaluation.target": 9.0, "steps.evaluate_every_opt_steps": 0},
        "'evaluation.target' is 9, but there are no evaluations: 'steps.evaluate_every_opt_steps' is 0",
    ),
    "patience with no evaluation": (
        "ppo",
        {"evaluation.patience": 3, "evaluate_every_epochs": 0},
        "'evaluation.patience' is 3, but there are no evaluations: 'evaluate_every_epochs' is 0",
    ),
    "nothing is normalised": (
        "ppo",
        {"normalise": {"observations": False, "rewards": False, "clip": 10.0}},
        "'normalise': neither observations nor rewards are normalised; set the whole section to null",
    ),
    "an entropy that nothing moves towards": (
        "sac",
        {"temperature.learned": False, "temperature.target_entropy": -1.0},
        "'temperature': 'target_entropy' is -1, which means nothing where 'learned' is false",
    ),
    "nesterov without momentum": (
        "ppo",
        {"optimizer": {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": True,
                       "weight_decay": 0.0}},
        "'optimizer': 'nesterov' is on, but 'momentum' is 0",
    ),
    "a learning rate that never warms up": (
        "dqn", {"learning_rate_schedule": warm_up(24)},
        "'learning_rate_schedule.warmup_steps' is 24, but the run has 24 opt",
    ),
    "a learning rate of ppo that never warms up": (
        "ppo", {"learning_rate_schedule": warm_up(36)},
        "'learning_rate_schedule.warmup_steps' is 36, but the run has 36 opt",
    ),
    "a clip that never warms up": (
        "ppo", {"clip.schedule": warm_up(40)}, "'clip.schedule.warmup_steps' is 40, but the run has 36",
    ),
    "a probability above 1": ("dqn", {"exploration.initial": 1.5}, "'initial' is 1.5.* probability, 1 at"),
    "a probability that rises above 1": (
        "dqn",
        {"exploration.schedule": {**FALLING, "final": 3.0}},
        "'exploration': 'schedule' reaches 3; with epsilon it is a probability, 1 at most",
    ),
    "a probability that passes above 1": (
        "iqn",
        {"exploration.schedule": {
            "kind": "piecewise", "warmup_steps": 0, "points": [[0, 1.0], [5, 1.5], [9, 0.1]]}},
        "'exploration': 'schedule' reaches 1.5; with epsilon it is a probability",
    ),
    "a correction above all of it": (
        "dqn",
        {"replay.prioritised": {**PRIORITISED, "beta_schedule": {**FALLING, "final": 1.5}}},
        "'beta_schedule' reaches 1.5; beta goes from 0",
    ),
    "a correction that passes above all of it": (
        "sac",
        {"replay.prioritised": {**PRIORITISED, "beta_schedule": {
            "kind": "piecewise", "warmup_steps": 0, "points": [[0, PRIORITISED["beta"]], [5, 1.5]]}}},
        "'beta_schedule' reaches 1.5; beta goes from 0",
    ),
    "a discount above 1": ("dqn", {"gamma": 1.5}, "'gamma' must be less than or equal to 1"),
    "a target's share above 1": ("sac", {"target.tau": 1.5}, "target.tau.* less than or equal to 1"),
    "an exploration that never warms up": (
        "iqn",
        {"exploration.schedule": warm_up(116)},
        "'exploration.schedule.warmup_steps' is 116, but the run has 116 env steps",
    ),
    "a beta that never warms up": (
        "dqn",
        {"replay.prioritised": {**PRIORITISED, "beta_schedule": warm_up(30)}},
        "'replay.prioritised.beta_schedule.warmup_steps' is 30, but the run has 24 optimisation steps",
    ),
    "a warm-up as long as its schedule": (
        "sac",
        {"learning_rate_schedule": {**warm_up(5), "kind": "linear", "final": 0.0, "total_steps": 5}},
        "'learning_rate_schedule': 'warmup_steps' is 5, which leaves nothing of 'total_steps' 5",
    ),
    "counted in what is not known": ("dqn", {"counted_in": "step"}, "counted_in.*steps"),
    "unknown wrapper": (
        "dqn",
        {"env.wrappers": [{"kind": "frame_stac", "count": 4}]},
        "Did you mean 'frame_stack'",
    ),
    "unknown network": ("ppo", {"network.kind": "mpl"}, "Did you mean 'mlp'"),
    "a network of convolutions for numbers": (
        "dqn",
        {
            "network": {
                "kind": "cnn", "channels": [2], "kernels": [3], "strides": [2], "width": 4,
                "activation": "relu", "init": "torch", "channels_last": True, "scale": 255.0,
            }
        },
        r"network.kind is cnn, but an observation has the shape \[4\].*use the kind mlp",
    ),
    "unknown exploration": ("dqn", {"exploration.kind": "greedy"}, r"exploration\.kind.*epsilon"),
    "unknown key": ("dqn", {"exploration.epsilon": 0.1}, "epsilon"),
    "unknown key at the top": ("sac", {"double": True}, "double"),
    "key left out": ("ppo", {"gae_lambda": ...}, "gae_lambda"),
    "wrong type": ("ppo", {"rollout_steps": "many"}, "rollout_steps"),
    "text for a number": ("dqn", {"gamma": "0.99"}, "gamma"),
    "gamma over 1": ("dqn", {"gamma": 1.5}, "gamma"),
    "priority over 1": ("dqn", {"replay.prioritised": {**PRIORITISED, "alpha": -1.0}}, "alpha"),
    "asynchronous text": ("dqn", {"evaluation.asynchronous": "yes"}, "asynchronous"),
}  # fmt: skip


def changed(kind: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a good config as plain data with some of its keys spoilt; ... leaves a key out."""
    data: dict[str, Any] = small(kind).model_dump(mode="json")
    for path, value in changes.items():
        *above, last = path.split(".")
        section = data
        for name in above:
            section = section[name]
        if value is ...:
            del section[last]
        else:
            section[last] = value
    return data


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


@pytest.mark.parametrize(("kind", "changes", "sentence"), BAD.values(), ids=BAD.keys())
def test_a_mistake_is_told_in_one_sentence_and_leaves_nothing(
    tmp_path: Path, call: Ludus, kind: str, changes: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps(changed(kind, changes)))
    with pytest.raises(LudusError, match=sentence):
        ludus.build_trainer(ludus.read_config(path)).fit()
    told = call("train", "bad.yaml").refusal()
    with pytest.raises(LudusError, match=sentence):
        raise LudusError(told)
    assert told.count("\n") == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.yaml"]


def test_the_configs_are_good_before_they_are_spoilt(tmp_path: Path) -> None:
    for kind in ("dqn", "iqn", "sac", "ppo"):
        path = tmp_path / f"{kind}.yaml"
        path.write_text(json.dumps(changed(kind, {})))
        assert ludus.read_config(path) == small(kind)


def test_a_wrong_env_leaves_no_process_behind(tmp_path: Path) -> None:
    """The env's processes are running before it is known that the agent cannot use it."""
    before = children()
    config = small("sac", **{"env.id": CARTPOLE, "settings.workers": 1})
    with pytest.raises(LudusError, match="'sac' chooses continuous actions"):
        ludus.build_trainer(config).fit(root=str(tmp_path))
    assert children() == before


def children() -> list[str]:
    """Return the numbers of the processes that this one started."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_envs_are_closed_also_where_nothing_was_walked(tmp_path: Path) -> None:
    """By a run that is finished already, and by one that cannot be resumed."""
    config = small("dqn")
    ludus.build_trainer(config).fit(root=str(tmp_path))
    finished: Any = ludus.build_trainer(config)
    assert finished.fit(root=str(tmp_path), resume=True).status == "finished"
    refused: Any = ludus.build_trainer(config.replace(double=False))
    with pytest.raises(LudusError, match=r"double true \(now false\)"):
        refused.fit(root=str(tmp_path), resume=True)
    for trainer in (finished, refused):
        assert trainer.env._open == []


class Spoil:
    """Lets the env misbehave from some update on."""

    derived = ("Odd",)

    def __init__(self, at: int, fault: dict[str, Any]) -> None:
        self.at, self.fault = at, fault

    def after_train_step(self, run: Any) -> None:
        if run.counters["opt_steps"] == self.at:
            Odd.fault = self.fault


@pytest.mark.parametrize("kind", ["dqn", "ppo"])
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ({"obs": np.array([0, np.nan, 0], np.float32)}, "observation is nan at 1"),
        ({"reward": float("nan")}, "reward is nan"),
    ],
)
def test_an_env_that_goes_wrong_ends_the_run_cleanly_and_it_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fault: Any, problem: str
) -> None:
    """Row 9 of the faults, in the middle of training; once mended the run ends as one unharmed."""
    monkeypatch.setattr(Odd, "fault", {})
    config = small(kind, **{"settings.checkpoint.every_stages": 5})
    config = config.replace(env=walk_config("odd", length=9))

    def trainer(*callbacks: Any) -> Any:
        made = ludus.build_trainer(config)
        for callback in callbacks:
            made.add(callback, name="spoil")
        return made

    straight = trainer(Spoil(-1, {}))
    straight.fit(root=str(tmp_path), name="straight")
    broken = trainer(Spoil(9, fault))
    with pytest.raises(EnvError, match=rf"odd, env \d, episode \d+, step 3: {problem}"):
        broken.fit(root=str(tmp_path), name="broken")
    events = lines(tmp_path / "broken", "events.jsonl")
    assert events[-1]["event"] == "failed"
    assert problem in events[-1]["reason"]
    monkeypatch.setattr(Odd, "fault", {})
    resumed = trainer(Spoil(-1, {}))
    result = resumed.fit(root=str(tmp_path), name="broken", resume=True)
    assert (result.status, result.exact) == ("finished", "expected")
    for name, tensor in straight.agent.weights().items():
        assert tensor.equal(resumed.agent.weights()[name])
