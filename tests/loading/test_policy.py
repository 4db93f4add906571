"""A loaded policy takes observations as its env gives them, and returns actions as its env takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus.core.errors import LudusError
from tests.rl.known_problems import observation, problem
from tests.rl.small import small

CNN = {
    "kind": "cnn", "channels": [2], "kernels": [3], "strides": [2], "width": 4, "activation": "relu",
    "init": "torch", "channels_last": True, "scale": 255.0,
}  # fmt: skip


def policy_of(root: Path, kind: str, **changes: Any) -> ludus.Policy:
    config = small(kind).replace(**changes)
    ludus.build_trainer(config).fit(root=str(root), name="run")
    return ludus.load(root / "run", "last", expected=ludus.Policy)


def test_one_observation_gives_one_action_and_a_batch_gives_as_many(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "dqn")
    env = policy.make_env()
    obs, _ = env.reset(seed=0)
    action, state = policy.predict(obs, state="mine")
    assert state == "mine"
    assert action.shape == ()
    assert env.action_space.contains(policy.act(obs))
    batch, _ = policy.predict(np.stack([obs, obs, obs]), deterministic=True)
    assert batch.tolist() == [action.item()] * 3
    assert policy.act(obs.tolist()) == action
    with pytest.raises(LudusError, match=r"observations of shape \[4\], .* of different shapes"):
        policy.predict([[0.0] * 4, [0.0] * 3])
    with pytest.raises(LudusError, match=r"observations of shape \[4\], .* but got \[3\]"):
        policy.predict(obs[:3])


def test_sampled_actions_are_another_and_are_repeated_by_a_seed(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "ppo")
    obs = np.tile(policy.make_env().reset(seed=0)[0], (40, 1))
    policy.seed(1)
    first = policy.predict(obs, deterministic=False)[0]
    assert {*first} == {0, 1}
    assert len({*policy.predict(obs)[0]}) == 1
    policy.seed(1)
    assert (policy.predict(obs, deterministic=False)[0] == first).all()


def by_hand(kind: str, weights: dict[str, Any], obs: np.ndarray) -> np.ndarray:
    """Return the greedy actions of a network of one layer, in the units of its env."""
    part = {"ppo": "network", "dqn": "q", "sac": "actor"}[kind]
    found = {name: one.double().numpy() for name, one in weights.items()}
    shift, scale = found["normalise.shift"], found["normalise.scale"]
    normal = ((obs - shift) * scale).clip(-CLIP, CLIP)
    layer = normal @ found[f"{part}.body.layers.0.weight"].T + found[f"{part}.body.layers.0.bias"]
    hidden = np.tanh(layer) if kind == "ppo" else layer.clip(0)
    head = {"ppo": "policy", "dqn": "advantage", "sac": "out"}[kind]
    outputs: np.ndarray = hidden @ found[f"{part}.{head}.weight"].T + found[f"{part}.{head}.bias"]
    return outputs


CLIP = 1.5
LOW, HIGH = np.array([-2.0, -1.0]), np.array([4.0, 1.0])
UNITS = {
    # The env numbers its three choices from 5.
    ("dqn", "tests_choice"): lambda outputs: 5 + outputs.argmax(1),
    ("ppo", "tests_choice"): lambda outputs: 5 + outputs.argmax(1),
    ("ppo", "tests_peak"): lambda outputs: outputs.clip(LOW, HIGH),
    ("sac", "tests_peak"): lambda outputs: LOW + (np.tanh(outputs[:, :2]) + 1) / 2 * (HIGH - LOW),
}


@pytest.mark.parametrize(("kind", "env"), UNITS)
def test_actions_are_the_trainers_own_and_those_worked_out_by_hand(
    kind: str, env: str, tmp_path: Path
) -> None:
    normalise = {"observations": True, "rewards": False, "clip": CLIP}
    config = small(kind, normalise=normalise).replace(env=problem(env, length=3))
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(tmp_path), name="run")
    policy = ludus.load(tmp_path / "run", "last", expected=ludus.Policy)
    obs = np.random.default_rng(0).uniform(-2, 2, (64, 4)).astype(np.float32)
    trainer.agent.eval()
    own = trainer.agent.act_greedy(obs, None)
    actions, _ = policy.predict(obs)
    hand = UNITS[kind, env](by_hand(kind, trainer.agent.weights(), obs))
    assert len(np.unique(hand, axis=0)) > 1
    np.testing.assert_allclose(actions, own.reshape(actions.shape), atol=1e-6)
    np.testing.assert_allclose(actions, hand, atol=1e-5)


def test_numbers_lie_in_the_bounds_and_have_the_shape_of_the_space(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "ppo", env=problem("tests_images"), network=CNN)
    images = np.zeros((5, 8, 8, 1), np.uint8)
    assert policy.act(images).shape == (5, 2)
    assert policy.action_space.contains(policy.act(images[0]))
    with pytest.raises(LudusError, match=r"takes images of uint8, .* but got float64"):
        policy.act(images / 255)


@pytest.mark.parametrize("kind", ["tests_choice", "tests_pair"])
def test_only_actions_that_the_masks_allow_are_chosen(kind: str, tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "ppo", env=problem(kind, has_masks=True))
    obs = np.stack([observation(0), observation(1)])
    masks = np.zeros((2, policy.spec.action.mask_width), bool)
    masks[:, [1, -1]] = True
    wanted = [7 if kind == "tests_choice" else [2, 12]] * 2
    if kind == "tests_choice":
        masks[:, 1] = False
    for greedy in (True, False):
        assert policy.predict(obs, deterministic=greedy, action_masks=masks)[0].tolist() == wanted
    assert np.array_equal(policy.act(obs[0], masks[0]), wanted[0])
    with pytest.raises(LudusError, match=r"some actions are forbidden; give the masks"):
        policy.predict(obs)
    with pytest.raises(LudusError, match=r"masks have [35] entries, for 2 observations"):
        policy.act(obs, masks[:, :-1])


def test_a_policy_of_numbers_takes_no_masks(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "sac")
    with pytest.raises(LudusError, match="of which no mask forbids any"):
        policy.act(np.zeros(3), np.ones(1, bool))


def test_observations_that_are_one_of_a_list_are_given_by_number(tmp_path: Path) -> None:
    env = small("dqn").env.model_copy(update={"id": "FrozenLake-v1"})
    pytest.importorskip("gymnasium.envs.toy_text")
    policy = policy_of(tmp_path, "dqn", env=env)
    assert policy.act(3) in range(4)
    assert policy.act([0, 3, 15]).shape == (3,)
    with pytest.raises(LudusError, match="the observation is 16, outside the env's space"):
        policy.act(16)
