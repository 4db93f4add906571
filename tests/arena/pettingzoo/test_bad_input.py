"""What cannot be played is told in a sentence, before any work where that can be."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import pytest

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.envs.errors import EnvError
from tests.arena.pettingzoo.made import counting, prepared, small_counting, small_env
from tests.arena.small import small_arena

NIP = {"kind": "nip", "max_message_rounds": 2, "min_message_rounds": 0, "verifier_first": False,
       "shared_reward": False, "force_guess": None, "prover_reward": 1.0, "verifier_reward": 1.0,
       "verifier_incorrect_reward": -1.0, "verifier_terminated_reward": -1.0,
       "verifier_continue_reward": 0.0}  # fmt: skip
MPE = {"kind": "mpe", "task": "simple_spread", "max_cycles": 5}


def refusal(**changed: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        small_env(**changed)
    return str(raised.value)


@pytest.mark.covers("002-S2")
def test_how_many_steps_each_env_takes_must_be_said_where_no_rounds_say_it() -> None:
    told = refusal(**{"rl.steps_per_env_per_iteration": None})
    assert "'rl.steps_per_env_per_iteration' is null, but an env has no rounds" in told
    with pytest.raises(
        ConfigError, match="rounds say how many steps an episode has; set it to null"
    ):
        small_arena(**{"rl.steps_per_env_per_iteration": 4})


def test_minibatches_must_divide_the_steps_of_all_envs() -> None:
    told = refusal(**{"rl.minibatch_size": 5})
    assert "'rl.minibatch_size' is 5, which does not divide the 16 steps" in told


def test_an_env_and_a_protocol_of_messages_do_not_go_together() -> None:
    told = refusal(protocol=NIP)
    assert "the scenario pettingzoo has agents and turns of its own" in told
    assert "make 'protocol' {kind: parallel}" in told
    with pytest.raises(ConfigError, match="make 'scenario' one of the kind pettingzoo"):
        small_arena().replace(protocol={"kind": "parallel"})


def test_agents_must_be_those_of_the_env() -> None:
    agents = {"row": small_env().agents["row"], "colum": small_env().agents["column"]}
    told = refusal(agents={name: one.model_dump() for name, one in agents.items()})
    assert "the protocol parallel has no agent 'colum'. Did you mean 'column'?" in told
    assert "needs an agent 'column'" in told


def test_an_env_whose_package_is_missing_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpe2.simple_spread_v3", None)
    told = refusal(**{"scenario.env": MPE})
    assert "'scenario': 'env': the env simple_spread needs a package that is not installed" in told
    assert "pip install" in told
    assert told.count("simple_spread") == 2  # once in the sentence, once in the module's name


def test_an_env_that_gymnasium_does_not_know_is_refused() -> None:
    told = refusal(**{"scenario.env": {"kind": "gymnasium", "id": "CartPool-v1"}})
    assert "'id' is CartPool-v1, which is not in gymnasium's registry. Did you mean" in told


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Ant-v2", "needs a package that is not installed: The mujoco v2 and v3 based"),
        ("phys2d/CartPole-v1", "needs a package that is not installed: import of jax halted"),
        ("GymV21Environment-v0", 'run `pip install "shimmy'),
        ("tests_asks_for_more-v0", "which gymnasium cannot make: TypeError"),
    ],
)
def test_an_env_that_gymnasium_cannot_make_is_refused_with_the_remedy(
    name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "shimmy", None)
    entry = gymnasium.envs.registration.EnvSpec(
        "tests_asks_for_more-v0", entry_point=lambda needed: None
    )
    monkeypatch.setitem(gymnasium.registry, entry.id, entry)
    told = refusal(**{"scenario.env": {"kind": "gymnasium", "id": name}})
    assert f"'id' is {name}, which " in told
    assert sentence in told
    assert "choose another id, such as CartPole-v1" in told


def test_actions_that_are_not_discrete_are_refused() -> None:
    told = refusal(**{"scenario.env": {"kind": "gymnasium", "id": "Pendulum-v1"}})
    assert "the actions of 'agent' of the env gymnasium are Box" in told


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("box", "give the env actions that are Discrete"),
        ("dotted", "the name of an agent is a word without dots"),
        ("mask", "sees an action_mask"),
    ],
)
def test_an_env_in_which_agents_of_the_arena_cannot_act_is_refused(
    fault: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        small_counting(counting(fault=fault))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("forgets", "says nothing of 'two' in its rewards"),
        ("nan", r"observations\['one'\] has nan, which is not finite"),
        ("raises", "counting_v0, env 0, episode 0, step 1: step raised ValueError: no more"),
    ],
)
def test_an_env_that_breaks_its_word_is_told_with_the_place(fault: str, sentence: str) -> None:
    with pytest.raises(EnvError, match=sentence):
        prepared(small_counting(counting(fault=fault)))


def test_data_are_not_asked_of_a_scenario_that_has_none() -> None:
    solo = ludus.example("solo_agent")
    scenario = small_env().scenario.model_dump()
    with pytest.raises(LudusError, match="pettingzoo has envs and no data with labels"):
        ludus.build_trainer(
            solo.replace(
                scenario=scenario,
                agents={"row": small_env().agents["row"].model_dump()},
                **{"settings.display": "none", "settings.loggers": []},
            )
        ).fit(max_steps=1)
