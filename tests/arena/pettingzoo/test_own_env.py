"""What an env of a user's own returns, has or lacks is told in one sentence where it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ludus.arena.scenarios.pettingzoo.environment import ParallelEnvironment
from ludus.arena.scenarios.pettingzoo.reading import as_flag, as_reward, flattened
from ludus.arena.scenarios.pettingzoo.spec import ParallelSpec, read_spec
from ludus.core.errors import ConfigError
from ludus.envs.errors import EnvError
from tests.arena.pettingzoo.made import Counting, CountingEnv, counting, small_counting

FIRST = torch.zeros(1, 2, 2, dtype=torch.int64)
Change = Callable[[CountingEnv], None]


def stepped(change: Change) -> None:
    """Take a step in an env that was changed."""
    env = CountingEnv(3, "none")
    spec = read_spec(env, "own")
    change(env)
    made = ParallelEnvironment(
        lambda: env,
        spec,
        num_envs=1,
        num_steps=4,
        max_episode_steps=100,
        seed=0,
        name="train",
        device=torch.device("cpu"),
    )
    made.step(made.begin(0), FIRST)


def told(change: Change) -> str:
    with pytest.raises(EnvError) as raised:
        stepped(change)
    found = str(raised.value)
    assert found.startswith("counting_v0, env 0, episode 0, step ")
    assert "\n" not in found
    return found


def gives(place: int, value: object, name: str | None = "two") -> Change:
    """Return a change by which a step gives this value, to an agent or in place of the whole dict."""

    def change(env: CountingEnv) -> None:
        take = env.step

        def step(actions: dict[str, int]) -> Any:
            given = [*take(actions)]
            given[place] = {**given[place], name: value} if name is not None else value
            return tuple(given)

        env.step = step  # type: ignore[method-assign]

    return change


def replaced(method: str, value: object) -> Change:
    """Return a change by which a method returns this value."""

    def change(env: CountingEnv) -> None:
        take = getattr(env, method)

        def call(*given: Any, **named: Any) -> Any:
            take(*given, **named)
            return value

        setattr(env, method, call)

    return change


class Unread:
    """Something of another library."""

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("no array")


SEEN, GAINS, ENDS, CUTS = range(4)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (GAINS, "much", "rewards['two'] is 'much', a str, not a number"),
        (GAINS, np.zeros(2), "rewards['two'] is an array of float64 of shape (2,), not a number"),
        (GAINS, None, "rewards['two'] is None, not a number"),
        (GAINS, float("nan"), "rewards['two'] is nan, which is not finite"),
        (GAINS, 1e300, "rewards['two'] is 1e+300, which is not finite in float32"),
        (GAINS, [[1.0], [1.0, 2.0]], "rewards['two'] is a list, not numbers of one shape"),
        (SEEN, None, "observations['two'] is None, not numbers as its observation_space, a Box"),
        (SEEN, "far", "observations['two'] is 'far', a str, not numbers"),
        (SEEN, "5", "observations['two'] is '5', a str, not numbers"),
        (SEEN, {"x": 1.0}, "observations['two'] is a dict with 'x', not numbers"),
        (SEEN, Unread(), "observations['two'] is a Unread, not numbers of one shape"),
        (SEEN, np.zeros(3), "observations['two'] has 3 numbers, but its observation_space has 1"),
        (SEEN, [np.inf], "observations['two'] has inf, which is not finite"),
        (SEEN, [1e300], "observations['two'] has inf, which is not finite"),
        (
            ENDS,
            np.zeros(2, bool),
            "terminations['two'] is an array of bool of shape (2,), not a bool",
        ),
        (ENDS, None, "terminations['two'] is None, not a bool"),
        (CUTS, "False", "truncations['two'] is 'False', a str, not a bool"),
        (CUTS, 2, "truncations['two'] is 2, a int, not a bool"),
    ],
)
def test_what_is_given_to_an_agent_and_is_not_what_it_should_be_is_named(
    place: int, value: object, sentence: str
) -> None:
    assert f"step 1: {sentence}" in told(gives(place, value))


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (GAINS, 1.0, "its rewards are 1.0, a float, not a dict by the names of agents"),
        (SEEN, np.zeros(3), "its observations are an array of float64 of shape (3,), not a dict"),
        (ENDS, None, "its terminations are None, not a dict"),
        (CUTS, [False], "its truncations are a list, not a dict"),
    ],
)
def test_what_is_given_to_all_must_be_a_dict(place: int, value: object, sentence: str) -> None:
    assert sentence in told(gives(place, value, name=None))


@pytest.mark.parametrize(
    ("method", "value", "sentence"),
    [
        ("step", ({}, {}, {}, {}), "step 1: step returned 4 things, not (observations, rewards, "),
        ("step", None, "step 1: step returned None, not (observations, rewards, terminations, "),
        ("reset", {"one": 1, "two": 2}, "step 0: reset returned a dict with 'one', 'two', not ("),
        ("reset", ({}, {}, {}), "step 0: reset returned 3 things, not (observations, infos)"),
    ],
)
def test_reset_and_step_return_so_many_things(method: str, value: object, sentence: str) -> None:
    assert sentence in told(replaced(method, value))


@pytest.mark.parametrize(
    ("agents", "sentence"),
    [
        (None, "its agents are None, not a list of names"),
        ("one", "its agents are 'one', a str, not a list of names"),
        ([["one"], "two"], "['one'] is among its agents and not among its possible_agents"),
    ],
)
def test_the_agents_that_are_there_are_a_list_of_names(agents: object, sentence: str) -> None:
    def change(env: CountingEnv) -> None:
        begin = env.reset

        def reset(seed: int | None = None, options: Any = None) -> Any:
            given = begin(seed, options)
            env.agents = agents  # type: ignore[assignment]
            return given

        env.reset = reset  # type: ignore[method-assign]

    assert f"step 0: {sentence}" in told(change)


def test_an_env_may_give_numbers_and_flags_of_any_library() -> None:
    for value in (2, 2.0, np.float32(2.0), np.array(2.0), np.array([2]), torch.tensor(2.0)):
        assert as_reward(value) == 2.0
    assert as_reward(True) == 1.0
    for value in (True, np.True_, 1, np.array(True), np.array([1]), torch.tensor(True)):
        assert as_flag(value) is True
    assert as_flag(0.0) is False
    box = spaces.Box(0.0, 1.0, (2,), np.float32)
    for seen in ([0, 1], np.array([[False, True]]), torch.tensor([0.0, 1.0])):
        assert flattened(box, 2, seen).tolist() == [0.0, 1.0]


def test_an_observation_that_does_not_fit_a_space_of_another_kind_is_named() -> None:
    both = spaces.Dict(place=spaces.Discrete(2), speed=spaces.Box(0.0, 1.0, (1,), np.float32))
    assert flattened(both, 3, {"place": 1, "speed": [0.5]}).tolist() == [0.0, 1.0, 0.5]
    for space, seen in ((both, np.zeros(3)), (both, {"place": 1}), (spaces.Discrete(2), None)):
        with pytest.raises(ValueError, match=r"which its observation_space, .*, does not fit"):
            flattened(space, 3, seen)


def refused(change: Change) -> str:
    env = CountingEnv(3, "none")
    change(env)
    with pytest.raises(ConfigError) as raised:
        read_spec(env, "own")
    return str(raised.value)


def setting(name: str, value: object) -> Change:
    return lambda env: setattr(env, name, value)


def failing(name: str) -> Any:
    raise KeyError(name)


@pytest.mark.parametrize("method", ["observation_space", "action_space"])
def test_spaces_must_be_asked_for_by_a_method(method: str) -> None:
    by_agent = dict.fromkeys(("one", "two"), spaces.Discrete(2))
    sentence = f"{method} of the env own is a dict and no method; define {method}(self, agent)"
    assert sentence in refused(setting(method, by_agent))
    assert "is a Discrete and no method" in refused(setting(method, spaces.Discrete(2)))
    found = refused(setting(method, lambda name: 3))
    assert f"{method}('one') of the env own returned a int, which is no space" in found
    found = refused(setting(method, failing))
    assert f"{method}('one') of the env own raised KeyError: 'one'" in found


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (None, "the env own names no possible_agents"),
        ([], "the env own names no possible_agents"),
        ("one", "possible_agents of the env own is a str; make it a list of names"),
        (2, "possible_agents of the env own is a int; make it a list of names"),
        ([1, 2], "the env own has an agent 1; the name of an agent is a word"),
        (["one", "one"], "the env own names an agent twice in its possible_agents, one, one"),
    ],
)
def test_an_env_names_its_agents_beforehand(names: object, sentence: str) -> None:
    assert sentence in refused(setting("possible_agents", names))


def test_an_env_that_cannot_be_made_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> Any:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(Counting, "make", fail)
    with pytest.raises(
        ConfigError, match="the env tests_counting cannot be made: ZeroDivisionError: division"
    ):
        small_counting(counting(num_steps=771))
    monkeypatch.setattr(Counting, "make", lambda self: None)
    with pytest.raises(ConfigError, match="`make` of the env tests_counting returned None"):
        small_counting(counting(num_steps=772))


def test_what_was_read_of_an_env_is_what_agents_are_built_for() -> None:
    spec = read_spec(CountingEnv(3, "none"), "own")
    assert spec == ParallelSpec(("one", "two"), (2, 1), (2, 4), (5, 0))
