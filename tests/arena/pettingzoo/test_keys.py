"""Every key of the scenario, its envs and its body does what its sentence says."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.arena.scenarios.pettingzoo.spec import maker_of, spec_of
from ludus.config.families import listed
from ludus.config.registry import find
from ludus.config.sections import validate
from tests.arena.pettingzoo.made import VECTOR, counting, prepared, small_counting, small_env
from tests.arena.sections import NEVER, parts
from tests.arena.small import MLP

KEYS: dict[str, dict[str, Any]] = {
    "coordination": {"num_steps": 4, "request_lasts": 2},
    "gymnasium": {"id": "CartPole-v1"},
    "mpe": {"task": "simple_spread", "max_cycles": 4},
    "pursuit": {"max_cycles": 4, "num_pursuers": 2, "num_evaders": 1},
    "rps": {"max_cycles": 4},
}


def section(kind: str, **changed: Any) -> Any:
    keys = {"kind": kind, **KEYS[kind], **changed}
    if kind == "mpe":
        pytest.importorskip("mpe2", reason="the particle envs are a package of their own")
    return validate(find("parallel_env", kind).Config, keys, source="the test")


def played(kind: str, **changed: Any) -> tuple[int, bool]:
    """Return how many steps an episode has in which everybody always does the first, and if it was cut."""
    env = maker_of(section(kind, **changed)).make()
    env.reset(seed=3)
    for count in range(1, 100):
        *_, cuts, _ = env.step(dict.fromkeys(env.possible_agents, 0))
        if not env.agents:
            return count, all(cuts.values())
    raise AssertionError("it does not end")


def test_every_env_is_tried_here_with_every_key() -> None:
    assert sorted(KEYS) == sorted(listed("parallel_env"))
    for kind, keys in KEYS.items():
        assert {"kind", *keys} == set(find("parallel_env", kind).Config.model_fields)


@pytest.mark.parametrize(
    ("kind", "key"), [("mpe", "max_cycles"), ("pursuit", "max_cycles"), ("rps", "max_cycles")]
)
def test_an_env_cuts_its_episode_after_so_many_steps(kind: str, key: str) -> None:
    assert played(kind) == (4, True)
    assert played(kind, **{key: 6}) == (6, True)


def test_coordination_terminates_after_so_many_steps_and_asks_anew_after_so_many() -> None:
    assert played("coordination") == (4, False)
    assert played("coordination", num_steps=7) == (7, False)

    def asked(lasts: int) -> list[int]:
        env: Any = maker_of(section("coordination", num_steps=40, request_lasts=lasts)).make()
        env.reset(seed=0)
        return [env.step({"row": 0, "column": 0}) and env.asked for _ in range(39)]

    changes = [sum(a != b for a, b in itertools.pairwise(one)) for one in map(asked, (1, 13))]
    assert changes[0] > 20
    assert changes[1] <= 3


def test_the_id_and_the_task_and_the_pursuers_say_who_acts() -> None:
    assert spec_of(section("gymnasium")).num_actions == (2,)
    assert spec_of(section("gymnasium", id="Acrobot-v1")).num_actions == (3,)
    names = ("pursuer_0", "pursuer_1")
    assert spec_of(section("pursuit")).agent_names == names
    assert len(spec_of(section("pursuit", num_pursuers=5)).agent_names) == 5
    assert spec_of(section("rps")).num_numbers == (4, 4)


def test_evaders_are_as_many_as_the_key_says() -> None:
    env: Any = maker_of(section("pursuit", num_evaders=7)).make()
    env.reset(seed=0)
    assert env.aec_env.unwrapped.env.n_evaders == 7


@pytest.mark.parametrize("task", ["simple_spread", "simple_speaker_listener", "simple_tag"])
def test_particles_are_trained_whatever_each_sees_and_does(task: str, tmp_path: Path) -> None:
    env = section("mpe", task=task)
    spec = spec_of(env)
    scenario = {"kind": "pettingzoo", "env": env.model_dump(), "max_episode_steps": 4}
    agents = dict.fromkeys(spec.agent_names, parts(VECTOR))
    config = small_env(scenario=scenario, agents=agents, max_iterations=2)
    assert ludus.build_trainer(config).fit(root=str(tmp_path)).status == "finished"


@pytest.mark.parametrize("env", ["pursuit", "rps"])
def test_envs_of_pettingzoo_are_trained_in(env: str, tmp_path: Path) -> None:
    own = section(env)
    scenario = {"kind": "pettingzoo", "env": own.model_dump(), "max_episode_steps": 4}
    agents = dict.fromkeys(spec_of(own).agent_names, parts(VECTOR))
    config = small_env(scenario=scenario, agents=agents, max_iterations=2)
    assert ludus.build_trainer(config).fit(root=str(tmp_path)).status == "finished"


def test_other_bodies_and_agents_act_in_envs_too(tmp_path: Path) -> None:
    random = {"kind": "random", "update_schedule": NEVER, "load": None}
    config = small_env(agents={"row": parts(MLP), "column": random}, max_iterations=2)
    assert ludus.build_trainer(config).fit(root=str(tmp_path)).status == "finished"


@pytest.mark.covers("002-S2")
def test_an_iteration_has_so_many_steps_of_so_many_envs() -> None:
    for envs, steps in ((2, 8), (4, 6)):
        keys = {"rl.rollouts_per_iteration": envs, "rl.steps_per_env_per_iteration": steps}
        trainer = prepared(small_counting(**keys, **{"rl.minibatch_size": 4}))
        assert trainer._roll_out(0).batch_size == (envs, steps)
        assert trainer.config.frames_per_batch == envs * steps
        trainer._collect(trainer.run)
        assert trainer.run.counters["env_steps"] == envs * steps


def test_an_episode_is_cut_after_so_many_steps_to_learn_and_to_judge() -> None:
    trainer = prepared(small_counting(counting(num_steps=50), limit=5))
    done = trainer._roll_out(0)["next", "agents", "done"][0, :, 0, 0]
    assert torch.nonzero(done)[:, 0].tolist() == [4]
    assert trainer.evaluation.validate()["rounds"] == 5.0


@functools.cache
def vector(**changed: Any) -> Any:
    agents = {name: parts({**VECTOR, **changed}) for name in ("row", "column")}
    if "widths" in changed:
        agents = {name: parts({**VECTOR, "widths": list(changed["widths"])}) for name in agents}
    return prepared(small_env(agents=agents)).agents.member("row").body


def test_a_vector_body_is_as_deep_wide_and_smooth_as_its_keys_say() -> None:
    assert [tuple(one.weight.shape) for one in vector(widths=(8, 5)).layers[::2]] == [
        (8, 9),
        (5, 8),
    ]
    assert vector(widths=(8, 5)).width == 5
    rows = {"observation": 3.0 * torch.randn(50, 9)}
    whole = vector()(rows).whole
    assert whole.min() < 0.0
    assert whole.abs().max() <= 1.0
    assert vector(activation="relu")(rows).whole.min() == 0.0
    assert vector(activation="relu")(rows).whole.max() > 1.0
    assert vector(normalise_observations=False).observed is None
    body, numbers = vector(), rows["observation"]
    assert torch.equal(body(rows).whole, body.layers(body.observed(numbers)))
    assert not torch.equal(body(rows).whole, body.layers(numbers))


def test_a_run_is_told_step_by_step() -> None:
    trainer = prepared(small_counting())
    lines = trainer.narrate(trainer.weights(), 1)
    assert len(lines) == 4
    assert lines[0].startswith("step 1: one takes ")
    assert ", two takes " in lines[2]
    assert lines[3].startswith("rewards: one +")
    assert trainer.evaluate_weights(trainer.weights(), episodes=2)["eval/one/return"] >= 15.0
