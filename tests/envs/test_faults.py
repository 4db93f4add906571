"""What an env may do wrong, and that it is told within the step: which env, when, and in what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError, LudusError
from ludus.envs.config import make_env
from ludus.envs.errors import EnvError
from ludus.envs.vector import VectorEnv, make_vector_env
from tests.rl.random_walks import Odd, RandomWalk, walk_config

NAN_OBS = np.array([0, np.nan, 0], np.float32)
BOTH_OBS = np.array([np.inf, -np.inf, 0], np.float32)
INF_OBS = np.array([0, 0, -np.inf], np.float32)


def raises(result: Any) -> Any:
    raise KeyError("no such joint")


def set_fault(monkeypatch, fault: dict[str, Any]) -> None:
    monkeypatch.setattr(Odd, "fault", fault)


FAULTS = {
    "raises": ({"do": raises}, "step", "step raised KeyError: 'no such joint'"),
    "four values": ({"do": lambda r: (*r[:3], r[4])}, "step", "4 values.*the old interface"),
    "one thing": ({"do": lambda r: r[0]}, "step", "returned a ndarray"),
    "nothing": ({"do": lambda r: None}, "step", "step raised TypeError"),
    "shape": ({"obs": np.zeros(4, np.float32)}, "observation", r"shape \(4,\).*says \(3,\)"),
    "one number": ({"obs": np.zeros(1, np.float32)}, "observation", r"shape \(1,\)"),
    "scalar": ({"obs": np.float32(1)}, "observation", r"shape \(\)"),
    "none": ({"obs": None}, "observation", "is a NoneType"),
    "text": ({"obs": np.array(["1", "2", "3"])}, "observation", "is of <U1.*float32"),
    "complex": ({"obs": np.zeros(3, complex)}, "observation", "complex128"),
    "ragged": ({"obs": [[1.0], [2.0, 3.0], []]}, "observation", "is a list"),
    "nan": ({"obs": NAN_OBS}, "observation", "observation is nan at 1"),
    "inf": ({"obs": INF_OBS}, "observation", "observation is -inf at 2"),
    "both infinities": ({"obs": BOTH_OBS}, "observation", "observation is inf at 0"),
    "too large": ({"obs": np.array([0, 1e300, 0])}, "observation", "is inf at 1.*in float32"),
    "reward nan": ({"reward": float("nan")}, "reward", "reward is nan"),
    "reward inf": ({"reward": np.float32("inf")}, "reward", "reward is inf"),
    "reward text": ({"reward": "1"}, "reward", "reward is a str"),
    "reward array": ({"reward": np.ones(2)}, "reward", "reward is a ndarray"),
    "reward none": ({"reward": None}, "reward", "reward is a NoneType"),
    "done int": ({"terminated": 1}, "terminated", "terminated is 1, a int and not a bool"),
    "done zero": ({"truncated": 0}, "truncated", "truncated is 0"),
    "done none": ({"terminated": None}, "terminated", "terminated is None"),
    "info": ({"terminated": True, "info": None}, "info", "info is a NoneType"),
}


@pytest.mark.parametrize(("fault", "field", "problem"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_told_within_its_step(monkeypatch, fault, field: str, problem: str) -> None:
    vector = make_vector_env(walk_config("odd"), 2, seed=0)
    vector.reset()
    actions = np.zeros(2, np.int64)
    vector.step(actions)
    vector.step(actions)
    before = vector.obs.copy()
    set_fault(monkeypatch, fault)
    with pytest.raises(EnvError, match=problem) as told:
        vector.step(actions)
    error = told.value
    assert (error.env, error.index, error.episode, error.step) == ("odd", 0, 0, 3)
    assert error.field == field
    assert str(error).startswith("odd, env 0, episode 0, step 3: ")
    assert "\n" not in str(error)
    assert isinstance(error, LudusError)
    # What one acts on is still what it was.
    assert np.array_equal(vector.obs, before)
    assert not vector.has_ended
    assert not vector.terminated.any()


def test_the_env_at_fault_is_named_among_others(monkeypatch) -> None:
    walks = [RandomWalk(walk_config(length=4)) for _ in range(2)]
    vector = VectorEnv([*walks, Odd(walk_config("odd", 4))], seed=0, name="env", title="x")
    vector.reset()
    for _ in range(4 + 2):
        vector.step(np.zeros(3, np.int64))
    for fault in ({"obs": NAN_OBS}, {"terminated": 0.0}):
        set_fault(monkeypatch, fault)
        with pytest.raises(EnvError, match="x, env 2, episode 1, step 3: "):
            vector.step(np.zeros(3, np.int64))
        vector._slots[2].env.num_steps = 2


AT_RESET = {
    "raises": (lambda: raises(None), "reset", "reset raised KeyError"),
    "no info": (lambda: np.zeros(3, np.float32), "reset", "returned a ndarray"),
    "info none": (lambda: (np.zeros(3, np.float32), None), "reset", "not .observation, info."),
    "shape": (lambda: (np.zeros(2, np.float32), {}), "observation", r"shape \(2,\)"),
    "nan": (lambda: (NAN_OBS, {}), "observation", "is nan at 1"),
}


@pytest.mark.parametrize(("fault", "field", "problem"), AT_RESET.values(), ids=AT_RESET.keys())
def test_a_fault_in_reset_is_told(monkeypatch, fault, field: str, problem: str) -> None:
    vector = make_vector_env(walk_config("odd", length=2), 1, seed=0)
    vector.reset()
    monkeypatch.setattr(Odd, "at_reset", staticmethod(fault))
    vector.step(np.zeros(1, np.int64))
    with pytest.raises(EnvError, match=problem) as told:
        vector.step(np.zeros(1, np.int64))
    assert (told.value.index, told.value.episode, told.value.step) == (0, 1, 0)
    assert told.value.field == field


class Reuses(RandomWalk):
    """Shows the same array every time, changed in place."""

    shown = np.zeros(3, np.float32)

    def reset(self, **kwargs):
        self.shown[:] = super().reset(**kwargs)[0]
        return self.shown, {}

    def step(self, action):
        obs, *rest = super().step(action)
        self.shown[:] = obs
        return self.shown, *rest


def test_an_observation_reused_in_place_is_no_trouble() -> None:
    # Both envs even share the one array.
    odd = VectorEnv(
        [Reuses(walk_config(length=4)) for _ in range(2)], seed=0, name="env", title="x"
    )
    plain = make_vector_env(walk_config(length=4), 2, seed=0)
    odd.reset()
    plain.reset()
    for _ in range(10):
        for vector in (odd, plain):
            vector.step(np.ones(2, np.int64))
        assert np.array_equal(odd.obs, plain.obs)
        assert np.array_equal(odd.next_obs, plain.next_obs)


class Loose(RandomWalk):
    """Keeps the contract in unusual types."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return (
            obs.astype(np.float64),
            np.array(reward),
            np.bool_(terminated),
            np.bool_(truncated),
            info,
        )


def test_numpy_scalars_and_wider_floats_are_no_fault() -> None:
    loose = VectorEnv([Loose(walk_config(length=4))], seed=0, name="env", title="x")
    plain = make_vector_env(walk_config(length=4), 1, seed=0)
    loose.reset()
    plain.reset()
    for _ in range(9):
        for vector in (loose, plain):
            vector.step(np.ones(1, np.int64))
        assert np.array_equal(loose.obs, plain.obs)
        assert loose.rewards == plain.rewards
        assert loose.has_ended == plain.has_ended


def test_large_but_finite_numbers_are_no_fault(monkeypatch) -> None:
    vector = make_vector_env(walk_config("odd"), 1, seed=0)
    vector.reset()
    set_fault(monkeypatch, {"obs": np.full(3, 3e38, np.float32), "reward": 1e308})
    seen = []
    for _ in range(5):
        vector.step(np.zeros(1, np.int64))
        seen.append((float(vector.next_obs.max()), vector.rewards.tolist()))
    assert (float(np.float32(3e38)), [1e308]) in seen


class Follows(RandomWalk):
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action):
        return super().step(float(action[0]))


def test_an_action_that_is_not_finite_is_named_as_the_cause() -> None:
    vector = VectorEnv([Follows(walk_config())], seed=0, name="env", title="x")
    vector.reset()
    with pytest.raises(EnvError, match=r"observation is nan at 0.*the action was \[nan\]"):
        vector.step(np.full((1, 1), np.nan, np.float32))


class Masks(RandomWalk):
    """Shows a mask that a test sets."""

    given: Any = np.ones(3, bool)

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0], {"action_mask": np.ones(3, bool)}

    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {} if self.given is None else {"action_mask": self.given}


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.ones(4, bool), "has 4 entries, the env has 3 actions"),
        (np.zeros(3, bool), "allows no action"),
        (np.ones(3), "is of float64, not of bools"),
        (None, "is missing from info"),
    ],
)
def test_a_mask_that_is_wrong_is_told(mask, problem: str) -> None:
    env = Masks(walk_config(length=2))
    vector = VectorEnv([env], seed=0, name="env", title="x")
    vector.reset()
    env.given = mask
    with pytest.raises(EnvError, match=f"action_mask {problem}") as told:
        vector.step(np.zeros(1, np.int64))
    assert told.value.field == "action_mask"


def test_the_last_step_of_an_episode_needs_no_mask() -> None:
    env = Masks(walk_config(length=1))
    vector = VectorEnv([env], seed=0, name="env", title="x")
    vector.reset()
    for mask in (None, np.zeros(3, bool)):
        env.given = mask
        vector.step(np.zeros(1, np.int64))
        assert vector.next_masks.all()


@register("env", "no_env")
class NoEnv:
    """Is called an env, and is none."""

    class Config(StrictConfig):
        """Nothing to choose."""

        kind: str
        """no_env or breaks."""

    def __init__(self, config: Config) -> None:
        if config.kind == "breaks":
            raise RuntimeError("no licence")


register("env", "breaks")(type("Breaks", (NoEnv,), {}))


def test_an_env_that_cannot_be_made_is_told() -> None:
    with pytest.raises(ConfigError, match="env no_env is a NoEnv; it must be"):
        make_env(NoEnv.Config(kind="no_env"))
    with pytest.raises(ConfigError, match="env breaks cannot be made: RuntimeError: no licence"):
        make_env(NoEnv.Config(kind="breaks"))
