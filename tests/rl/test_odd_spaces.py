"""Spaces seldom met, with and without masks: they are learned in, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ludus
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError
from ludus.envs.errors import EnvError
from tests.rl.small import small

ROW = spaces.Box(-1, 1, (3,))
NUMBER = spaces.Box(-1, 1, ())


@register("env", "tests_odd")
class Odd(gymnasium.Env):
    """Episodes of five steps in whatever spaces a test sets; it refuses actions outside them."""

    class Config(StrictConfig):
        kind: Literal["tests_odd"]
        """This env."""

    observation_space: Any
    action_space: Any
    mask: Any
    taken: list[Any]

    def __init__(self, config: Config) -> None:
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), self._info()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is no action of this env"
        self.taken.append(action)
        self.time += 1
        return self._seen(), 1.0, self.time == 5, False, self._info()

    def _seen(self) -> Any:
        return np.asarray(self.np_random.random(self.observation_space.shape), np.float32)

    def _info(self) -> dict[str, Any]:
        return {} if self.mask is None else {"action_mask": self.mask}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run_in(kind: str, seen: Any, actions: Any, mask: Any = None) -> list[Any]:
        given = {"observation_space": seen, "action_space": actions, "mask": mask, "taken": []}
        for name, value in given.items():
            monkeypatch.setattr(Odd, name, value, raising=False)
        trainer: Any = ludus.build_trainer(small(kind).replace(env={"kind": "tests_odd"}))
        assert trainer.fit(root=str(tmp_path)).status == "finished"
        return Odd.taken

    return run_in


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_an_action_may_be_one_number_without_a_shape(run: Any, kind: str) -> None:
    assert {np.shape(action) for action in run(kind, ROW, NUMBER)} == {()}


@pytest.mark.parametrize(
    ("kind", "actions"),
    [("ppo", spaces.Discrete(2)), ("dqn", spaces.Discrete(2)), ("sac", spaces.Box(-1, 1, (1,)))],
)
def test_an_observation_may_be_one_number_without_a_shape(
    run: Any, kind: str, actions: Any
) -> None:
    taken = run(kind, NUMBER, actions)
    assert taken
    assert all(actions.contains(action) for action in taken)


def test_masks_of_binary_actions_have_two_entries_for_each(run: Any) -> None:
    mask = np.array([1, 0, 0, 1, 1, 1], bool)
    taken = np.stack(run("ppo", ROW, spaces.MultiBinary(3), mask))
    assert (taken[:, :2] == [0, 1]).all()
    assert set(taken[:, 2]) == {0, 1}


def test_masks_fit_choices_in_a_table(run: Any) -> None:
    mask = np.array([1, 0, 0, 1, 0, 1, 1, 1, 0], bool)
    table = spaces.MultiDiscrete([[2, 3], [2, 2]])
    taken = np.stack(run("ppo", ROW, table, mask))
    assert (taken[:, 0] == [0, 1]).all()
    assert set(taken[:, 1, 0]) == {0, 1}
    assert (taken[:, 1, 1] == 0).all()


def test_a_choice_that_is_wholly_forbidden_is_told(run: Any) -> None:
    with pytest.raises(EnvError, match="action_mask allows nothing for choice 1 of 2"):
        run("ppo", ROW, spaces.MultiDiscrete([2, 3]), np.array([1, 1, 0, 0, 0], bool))


def test_a_mask_of_one_entry_for_each_binary_action_is_told_what_is_wanted(run: Any) -> None:
    with pytest.raises(EnvError, match="has 3 entries, the env has 6 actions of 3 choices"):
        run("ppo", ROW, spaces.MultiBinary(3), np.ones(3, bool))


def test_a_mask_on_continuous_actions_is_refused(run: Any) -> None:
    with pytest.raises(ConfigError, match="gives an action_mask, but its actions are continuous"):
        run("ppo", ROW, spaces.Box(-1, 1, (2,)), np.ones(2, bool))


EMPTY = {
    "observations": (spaces.Box(-1, 1, (2, 0)), spaces.Discrete(2), "observations .* no number"),
    "actions": (ROW, spaces.Box(-1, 1, (0,)), "action space .* has no number to choose"),
}


@pytest.mark.parametrize(("seen", "actions", "problem"), EMPTY.values(), ids=EMPTY.keys())
def test_a_space_without_numbers_is_refused(
    run: Any, seen: Any, actions: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        run("ppo", seen, actions)


def test_a_choice_that_is_wholly_forbidden_in_an_evaluation_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The training env allows something, that of the evaluation does not."""
    given = {"observation_space": ROW, "action_space": spaces.MultiDiscrete([2, 3]), "taken": []}
    for name, value in {**given, "mask": np.array([1, 1, 0, 0, 0], bool)}.items():
        monkeypatch.setattr(Odd, name, value, raising=False)
    evaluator = ludus.Evaluator(small("ppo").replace(env={"kind": "tests_odd"}))

    class First:
        def act_greedy(self, obs: Any, masks: Any) -> Any:
            return np.zeros((len(obs), 2), int)

    with pytest.raises(EnvError, match="action_mask allows nothing for choice 1 of 2"):
        evaluator.evaluate(First())
