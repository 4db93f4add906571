"""Configs that name an env, and those that name none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

import ludus.rl
from ludus.config.base import read_config
from ludus.config.registry import _REGISTERED
from ludus.config.sections import StrictConfig, validate
from ludus.core.errors import ConfigError
from ludus.envs.config import make_env
from ludus.envs.kinds.gymnasium import RegisteredEnv
from tests.rl.random_walks import gym_config, walk_config


def test_an_env_of_ones_own_needs_a_class_and_a_config() -> None:
    assert isinstance(make_env(walk_config()), _REGISTERED["env"]["random_walk"])


def test_an_unknown_id_is_told_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"'Cartpol-v1'\. Did you mean 'CartPole-v1'"):
        make_env(gym_config("Cartpol-v1"))
    with pytest.raises(ConfigError, match="--plugin its_module"):
        make_env(gym_config("zzzzzz"))
    with pytest.raises(ConfigError, match="Did you mean 'CartPole-v1'"):
        validate(RegisteredEnv.Config, gym_config("CartPole-v11").model_dump(), source="x")


def test_an_id_can_never_make_ludus_import_something() -> None:
    before = set(sys.modules)
    with pytest.raises(ConfigError, match="no env has the id"):
        make_env(gym_config("antigravity:CartPole-v1"))
    assert set(sys.modules) == before


def test_arguments_the_env_does_not_know_are_named() -> None:
    with pytest.raises(ConfigError, match=r"env CartPole-v1: kwargs\.gravty is no argument"):
        make_env(gym_config("CartPole-v1", kwargs={"gravty": 1.0}))
    with pytest.raises(ConfigError, match="kwargs must not hold max_episode_steps"):
        make_env(gym_config("CartPole-v1", kwargs={"max_episode_steps": 3}))


def test_arguments_reach_the_env() -> None:
    env = make_env(gym_config("Pendulum-v1", kwargs={"g": 2.5}))
    assert env.unwrapped.g == 2.5


def test_an_argument_of_the_env_can_be_set_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "dqn.yaml"
    path.write_text(ludus.example("dqn").to_yaml())
    config: Any = read_config(path, ["env.id=Pendulum-v1", "env.kwargs.g=2.5"])
    assert config.env.kwargs == {"g": 2.5}
    assert config.replace(**{"env.kwargs.g": 3.0}).env.kwargs == {"g": 3.0}
    with pytest.raises(ConfigError, match=r"'env\.kwargz\.g' is not a key of env"):
        read_config(path, ["env.kwargz.g=2.5"])


def test_without_gymnasium_an_agent_says_what_to_install() -> None:
    code = "import sys\nsys.modules['gymnasium'] = None\nimport ludus\nludus.example('dqn')\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs gymnasium; install it with: pip install 'ludus[rl]'" in done.stderr


def test_wrappers_of_an_env_of_ones_own_need_the_right_type() -> None:
    class Loose(StrictConfig):
        kind: Literal["random_walk"]
        """A walk."""
        length: int
        """Its length."""
        wrappers: list[Any]
        """Anything."""

    section = Loose(kind="random_walk", length=3, wrappers=[{"kind": "flatten_observation"}])
    with pytest.raises(ConfigError, match=r"declare 'wrappers' as list\[WrapperSection\]"):
        make_env(section)


def test_a_missing_package_of_an_env_is_told_in_one_sentence(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        ConfigError, match=r"env LunarLander-v3 needs a package .*[Bb]ox2[dD]"
    ) as told:
        make_env(gym_config("LunarLander-v3"))
    assert "\n" not in str(told.value)
