"""A scenario instance that a script has built is that of the config, or is refused before the run begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.arena.scenario import ScenarioInstance
from ludus.arena.trainers.vanilla_ppo import VanillaPpoTrainer
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.testing.differences import ending_of
from tests.arena.sections import parts
from tests.arena.small import MLP, small_arena
from tests.arena.small_solo import small_solo


def built(config: Any, trainer_type: str = "rl", **sizes: int) -> ScenarioInstance:
    return ludus.build_scenario_instance(
        config,
        device=torch.device("cpu"),
        trainer_type=trainer_type,
        use_shared_body=True,
        **{"num_envs": 8, "num_judged": 8, **sizes},
    )


def test_the_agents_of_a_given_instance_are_trained(tmp_path: Path) -> None:
    config = small_arena()
    instance = built(config)
    before = {name: one.clone() for name, one in instance.agents.named_parameters()}
    VanillaPpoTrainer(config, instance).fit(root=str(tmp_path))
    moved = [n for n, one in instance.agents.named_parameters() if not torch.equal(one, before[n])]
    assert len(moved) > 10


ALONE = {
    "protocol": {"kind": "solo_verifier", "force_guess": None, "verifier_reward": 1.0,
                 "verifier_incorrect_reward": -1.0, "verifier_terminated_reward": -1.0},
    "agents": {"verifier": parts(MLP)},
    "rl.minibatch_size": 4,
}  # fmt: skip
MISTAKES: list[tuple[dict[str, Any], dict[str, int], str]] = [
    ({}, {"num_envs": 4}, "was built for 4 rl.rollouts_per_iteration, but the config says 8"),
    ({}, {"num_envs": 16}, "was built for 16 rl.rollouts_per_iteration, but the config says 8"),
    ({}, {"num_judged": 2}, "was built for 2 evaluation.episodes, but the config says 8"),
    (
        {"protocol.max_message_rounds": 4},
        {},
        "was built for 32 steps of an iteration, but the config says 16",
    ),
    (ALONE, {}, "has the agents verifier, but the config describes"),
]


@pytest.mark.parametrize(("changed", "sizes", "sentence"), MISTAKES)
def test_an_instance_of_another_config_is_refused(
    changed: dict[str, Any], sizes: dict[str, int], sentence: str
) -> None:
    instance = built(small_arena(**changed), **sizes)
    with pytest.raises(ConfigError) as told:
        VanillaPpoTrainer(small_arena(), instance).fit(runtime=InMemoryRuntime)
    assert sentence in str(told.value)


def test_agents_without_the_heads_of_the_trainer_are_refused_in_a_sentence() -> None:
    config = small_arena()
    with pytest.raises(LudusError, match="built without a policy_head; build it with the trainer_"):
        VanillaPpoTrainer(config, built(config, "solo_agent")).fit(runtime=InMemoryRuntime)


def test_envs_that_the_trainer_made_are_closed_and_those_of_a_script_are_not() -> None:
    def closings(trainer: Any) -> list[str]:
        found: list[str] = []

        class Hooks:
            def before_train(self) -> None:
                for place, one in enumerate(trainer.scenario_instance.environments):
                    one.close = lambda place=place: found.append(str(place))

        trainer.add(Hooks())
        trainer.fit(runtime=InMemoryRuntime)
        return found

    config = small_arena()
    assert closings(VanillaPpoTrainer(config)) == ["0", "1", "2"]
    assert closings(VanillaPpoTrainer(config, built(config))) == []


@pytest.mark.covers("002-M1")
@pytest.mark.parametrize("config", [small_arena(), small_solo()], ids=["rl", "alone"])
def test_a_config_is_enough_to_build_the_instance_that_its_trainer_would_build(
    config: Any, tmp_path: Path
) -> None:
    instance = ludus.build_scenario_instance(config)
    trainer = type(ludus.build_trainer(config))(config, instance)
    given = trainer.fit(root=str(tmp_path), name="given")
    plain = ludus.build_trainer(config).fit(root=str(tmp_path), name="plain")
    one, other = (ending_of(str(result.run_dir)) for result in (given, plain))
    assert one.metrics == other.metrics
    assert one.models == other.models


def test_settings_choose_the_device_of_an_instance() -> None:
    config = small_arena()
    settings = config.settings.model_copy(update={"device": "nowhere"})
    with pytest.raises(LudusError, match="nowhere"):
        ludus.build_scenario_instance(config, settings)


@pytest.mark.parametrize("name", ["scenario_instance", "agents", "loss_module", "learner"])
def test_what_fit_builds_says_so_where_it_is_read_before(name: str) -> None:
    trainer = ludus.build_trainer(small_arena())
    with pytest.raises(LudusError, match=f"VanillaPpoTrainer.{name} is there once fit.. has begun"):
        getattr(trainer, name)
    assert not hasattr(trainer, name)
    with pytest.raises(AttributeError, match="has no attribute 'scenario_instanse'"):
        getattr(trainer, "scenario_" + "instanse")


def test_an_instance_that_was_given_can_be_read_before_fit() -> None:
    config = small_arena()
    instance = ludus.build_scenario_instance(config)
    trainer = VanillaPpoTrainer(config, instance)
    assert trainer.scenario_instance is instance
    assert trainer.agents is instance.agents
