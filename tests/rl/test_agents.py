"""Every agent learns small problems whose answers are known, and acts within what the env allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus.core.errors import LudusError
from ludus.nn.distributions import draw_categorical, masked
from ludus.nn.export.numpy_policy import NumpyPolicy
from ludus.rl.agent import Agent
from ludus.rl.export import export_policy
from tests.rl.known_problems import (
    GAMMA,
    PAIRS_C,
    PEAK,
    REWARDS_CA,
    learning,
    observation,
    problem,
)
from tests.rl.small import BY_KL, NORMALISE, PRIORITISED, small

CONTEXTS = np.stack([observation(0), observation(1)])


def learned(kind: str, env: Any, root: Path, **changes: Any) -> Any:
    """Return the agent at the end of such a run."""
    trainer: Any = ludus.build_trainer(learning(kind, env, **changes))
    assert trainer.fit(root=str(root), name=kind).status == "finished"
    return trainer.agent


def known_states(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return every observation of the choice, and the value of each action there."""
    observations, values = [*CONTEXTS], [*(GAMMA ** (length - 1) * REWARDS_CA)]
    for time in range(1, length):
        for prize in REWARDS_CA.flatten():
            observations.append(observation(0, time, prize))
            values.append(np.full(3, GAMMA ** (length - 1 - time) * prize))
    return np.stack(observations), np.stack(values)


DQNS: dict[str, dict[str, Any]] = {
    "plain": {"double": False, "huber": None},
    "double": {"double": True},
    "dueling": {"dueling": True},
    "n_step": {"n_step": 3},
    "n_step across the end": {"n_step": 5, "double": False},
    "prioritised": {"replay.prioritised": PRIORITISED},
    "soft": {"exploration.kind": "softmax"},
}


@pytest.mark.covers("004-S5")
@pytest.mark.parametrize("changes", DQNS.values(), ids=DQNS.keys())
def test_dqn_finds_the_values_of_all_actions(tmp_path: Path, changes: dict[str, Any]) -> None:
    agent = learned("dqn", problem("tests_choice", 3), tmp_path, **changes)
    observations, values = known_states(3)
    with torch.no_grad():
        found = agent.learner.module(torch.from_numpy(observations)).numpy()
    np.testing.assert_allclose(found, values, atol=0.12)
    assert agent.act_greedy(CONTEXTS, None).tolist() == [5 + 2, 5 + 0]


@pytest.mark.covers("004-S5")
@pytest.mark.parametrize("changes", [{}, {"double": False, "replay.prioritised": PRIORITISED}])
def test_iqn_finds_the_means_of_all_actions(tmp_path: Path, changes: dict[str, Any]) -> None:
    agent = learned("iqn", problem("tests_choice", 3), tmp_path, **changes)
    observations, values = known_states(3)
    np.testing.assert_allclose(agent.values(observations), values, atol=0.15)
    assert agent.act_greedy(CONTEXTS, None).tolist() == [7, 5]


@pytest.mark.covers("004-S5")
@pytest.mark.parametrize("length", [1, 2])
def test_sac_finds_the_best_constant_action(tmp_path: Path, length: int) -> None:
    certain = {"initial": 0.005, "learned": False, "target_entropy": None}
    agent = learned(
        "sac",
        problem("tests_peak", length),
        tmp_path,
        temperature=certain,
        **{"steps.max_opt_steps": 700},
    )
    found = agent.act_greedy(CONTEXTS, None)
    np.testing.assert_allclose(found, [PEAK, PEAK], atol=0.3)


@pytest.mark.covers("002-S1")
def test_ppo_finds_the_best_of_several_actions(tmp_path: Path) -> None:
    agent = learned("ppo", problem("tests_choice", 2), tmp_path)
    assert agent.act_greedy(CONTEXTS, None).tolist() == [7, 5]


def test_ppo_finds_the_best_of_two_choices_at_once(tmp_path: Path) -> None:
    agent = learned("ppo", problem("tests_pair"), tmp_path, shared_body=True, **BY_KL)
    assert agent.act_greedy(CONTEXTS, None).tolist() == [list(pair) for pair in PAIRS_C]


def test_ppo_finds_the_best_numbers(tmp_path: Path) -> None:
    agent = learned("ppo", problem("tests_peak"), tmp_path, max_env_steps=128 * 40)
    np.testing.assert_allclose(agent.act_greedy(CONTEXTS, None), [PEAK, PEAK], atol=0.3)


MASKED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dqn": ("dqn", "tests_choice", {"dueling": True, "steps.max_opt_steps": 300}),
    "dqn softmax": (
        "dqn",
        "tests_choice",
        {"exploration.kind": "softmax", "exploration.initial": 0.1, "steps.max_opt_steps": 300},
    ),
    "dqn one env": (
        "dqn",
        "tests_choice",
        {"num_envs": 1, "exploration.initial": 0.5, "steps.max_opt_steps": 300},
    ),
    "iqn": ("iqn", "tests_choice", {"steps.max_opt_steps": 300}),
    "ppo": ("ppo", "tests_choice", {}),
    "ppo two choices": ("ppo", "tests_pair", {}),
}


@pytest.mark.parametrize(("kind", "env", "changes"), MASKED.values(), ids=MASKED.keys())
def test_a_forbidden_action_is_never_taken_and_the_best_allowed_one_is_found(
    tmp_path: Path, kind: str, env: str, changes: dict[str, Any]
) -> None:
    """The env raises where it is given a forbidden action, in training and in evaluation."""
    agent = learned(kind, problem(env, 1, has_masks=True), tmp_path, **changes)
    if env == "tests_choice":
        masks = np.arange(3) != REWARDS_CA.argmax(1)[:, None]
        assert agent.act_greedy(CONTEXTS, masks).tolist() == [5 + 0, 5 + 1]
    else:
        masks = np.ones((2, 5), bool)
        masks[[0, 1], [2, 4]] = False
        found = agent.act_greedy(CONTEXTS, masks)
        assert found[:, 0].tolist() == [PAIRS_C[0][0], PAIRS_C[1][0]]
        assert (found[:, 1] != [PAIRS_C[0][1], PAIRS_C[1][1]]).all()


def test_a_draw_of_exactly_zero_is_no_way_to_a_forbidden_action() -> None:
    """One exponential draw in some millions is 0 in float32."""

    class Zeros:
        def standard_exponential(self, shape: Any, dtype: Any) -> Any:
            return np.zeros(shape, dtype)

    logits = masked(np.array([[0.0, 5.0, 1.0]], np.float32), np.array([[True, False, True]]))
    assert draw_categorical(logits, Zeros()).tolist() == [2]  # type: ignore[arg-type]


def test_a_draw_follows_the_odds() -> None:
    logits = np.log(np.tile(np.array([[0.1, 0.6, 0.3]], np.float32), (20_000, 1)))
    drawn = draw_categorical(logits, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, [0.1, 0.6, 0.3], atol=0.015)


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dqn": ("dqn", "tests_choice", {"normalise": NORMALISE}),
    "dqn dueling": ("dqn", "tests_choice", {"dueling": True}),
    "iqn": ("iqn", "tests_choice", {"normalise": {**NORMALISE, "observations": False}}),
    "sac": ("sac", "tests_peak", {"normalise": NORMALISE}),
    "ppo": ("ppo", "tests_choice", {}),
    "ppo two choices": ("ppo", "tests_pair", {"shared_body": True}),
    "ppo numbers": ("ppo", "tests_peak", {"normalise": NORMALISE}),
}


@pytest.mark.parametrize(("kind", "env", "changes"), CASES.values(), ids=CASES.keys())
def test_weights_and_exported_policies_act_alike(
    tmp_path: Path, kind: str, env: str, changes: dict[str, Any]
) -> None:
    lengths = {"max_env_steps": 256} if kind == "ppo" else {"steps.max_opt_steps": 30}
    agent = learned(kind, problem(env, 2), tmp_path, **lengths, **changes)
    obs = np.random.default_rng(0).normal(0, 2, (50, 4)).astype(np.float32)
    actions = agent.act_greedy(obs, None).copy()
    assert len(np.unique(actions, axis=0)) > 1

    # Another seed, so that nothing is right by chance.
    other: Any = ludus.build_trainer(learning(kind, problem(env, 2), seed=1, **lengths, **changes))
    other.prepare(max_steps=None)
    assert not np.array_equal(other.agent.act_greedy(obs, None), actions)
    other.agent.load_weights(agent.weights())
    assert np.array_equal(other.agent.act_greedy(obs, None), actions)

    export_policy(agent, tmp_path / "policy")
    policy = NumpyPolicy.load(tmp_path / "policy")
    found = policy(obs)
    assert found.dtype == actions.dtype
    np.testing.assert_allclose(found, actions, atol=1e-5)
    # What is learned later must not reach into what was exported.
    agent.load_weights({name: tensor + 1 for name, tensor in agent.weights().items()})
    np.testing.assert_allclose(policy(obs), actions, atol=1e-5)


def test_greedy_actions_stay_within_the_bounds_of_the_env() -> None:
    low, high = np.float32([-2, -1]), np.float32([4, 1])
    obs = 1e4 * np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    for kind in ("sac", "ppo"):
        trainer: Any = ludus.build_trainer(learning(kind, problem("tests_peak")))
        trainer.prepare(max_steps=None)
        actions = trainer.agent.act_greedy(obs, None)
        explored = trainer.agent.to_env(trainer.agent.act(obs, None, 10**6))
        for found in (actions, explored):
            assert found.shape == (100, 2)
            assert (found >= low).all()
            assert (found <= high).all()


def test_a_network_of_convolutions_is_not_exported() -> None:
    network = {
        "kind": "cnn", "channels": [2], "kernels": [3], "strides": [2], "width": 4,
        "activation": "relu", "init": "torch", "channels_last": True, "scale": 255.0,
    }  # fmt: skip
    trainer: Any = ludus.build_trainer(
        small("ppo").replace(env=problem("tests_images"), network=network)
    )
    trainer.prepare(max_steps=None)
    with pytest.raises(LudusError, match=r"layers that NumPy cannot compute .*network.kind: mlp"):
        export_policy(trainer.agent, "nowhere")


@pytest.mark.covers("000-S1", "004-D10")
@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_an_agent_in_eval_mode_does_not_explore(kind: str, tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small(kind))
    trainer.fit(root=str(tmp_path), name=kind)
    agent, obs = trainer.agent, trainer.env.obs
    agent.eval()
    acted = agent.to_env(agent.act(obs, None, 0))
    assert np.array_equal(acted, agent.act_greedy(obs, None))
    agent.train()
    drawn = {agent.act(obs, None, 0).tobytes() for _ in range(40)}
    assert len(drawn) > 1


EXAMPLES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "dqn": ("dqn", None, {}),
    "dqn with priorities": ("dqn", None, {"replay.prioritised": PRIORITISED}),
    "dqn with masks": ("dqn", problem("tests_choice", 1, has_masks=True), {}),
    "iqn": ("iqn", None, {}),
    "iqn with priorities": ("iqn", None, {"replay.prioritised": PRIORITISED}),
    "sac": ("sac", None, {}),
    "sac with priorities": ("sac", None, {"replay.prioritised": PRIORITISED}),
    "ppo": ("ppo", None, {}),
    "ppo with masks": ("ppo", problem("tests_choice", 1, has_masks=True), {}),
}


@pytest.mark.parametrize(("kind", "env", "changes"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_the_update_is_tried_with_inputs_of_the_shapes_that_it_learns_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, env: Any, changes: dict[str, Any]
) -> None:
    """The compiler is asked with them beforehand whether it can take the update."""
    config = small(kind, engine="eager", **changes)
    trainer: Any = ludus.build_trainer(config if env is None else config.replace(env=env))
    trainer.prepare(max_steps=None)
    found, update = [], type(trainer.agent).update

    def shapes(inputs: Any) -> list[Any]:
        return [None if x is None else (tuple(x.shape), x.dtype) for x in inputs]

    def look(agent: Any, *inputs: Any) -> Any:
        found.append(shapes(inputs))
        return update(agent, *inputs)

    monkeypatch.setattr(type(trainer.agent), "update", look)
    trainer.fit(root=str(tmp_path), name="run")
    assert found
    assert shapes(trainer.agent.example_inputs()) in found


def test_an_agent_is_asked_for_its_policy_and_one_without_says_so(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("ppo"))
    trainer.prepare(max_steps=None)
    silent = type("Silent", (type(trainer.agent),), {"exported_policy": Agent.exported_policy})
    trainer.agent.__class__ = silent
    with pytest.raises(LudusError, match="a Silent agent cannot be exported; give it a method"):
        export_policy(trainer.agent, tmp_path / "policy")
