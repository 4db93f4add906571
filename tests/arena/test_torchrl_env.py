"""A protocol is an env of TorchRL's too, for its collectors."""

import pytest
import torch
from torchrl.envs.utils import check_env_specs

import ludus
from ludus.arena.agents.combined import make_actor
from ludus.arena.build import build_scenario_instance
from ludus.arena.playing.rollout import roll_out
from ludus.arena.playing.torchrl_env import ArenaEnv
from ludus.arena.scenario import ScenarioInstance
from ludus.core.errors import LudusError


@pytest.fixture
def instance() -> ScenarioInstance:
    config = ludus.example("vanilla_ppo").replace(
        **{"scenario.train_size": 16, "scenario.validation_size": 4, "scenario.test_size": 4}
    )
    return build_scenario_instance(
        config,
        device=torch.device("cpu"),
        trainer_type="rl",
        num_envs=4,
        num_judged=4,
        use_shared_body=True,
    )


@pytest.mark.filterwarnings("ignore")
def test_torchrl_finds_nothing_wrong_with_it(instance: ScenarioInstance) -> None:
    check_env_specs(ArenaEnv(instance.train_environment, 16))


@pytest.mark.filterwarnings("ignore")
def test_it_leads_where_a_rollout_of_ludus_leads(instance: ScenarioInstance) -> None:
    env = ArenaEnv(instance.train_environment, 16)
    rounds = instance.protocol_handler.max_message_rounds
    td = env.rollout(2 * rounds, make_actor(instance.agents), break_when_any_done=False)
    assert td["next", "done"][0, :, 0].tolist() == ([False] * (rounds - 1) + [True]) * 2
    for iteration in range(2):
        theirs = td[:, iteration * rounds : (iteration + 1) * rounds]
        actions = iter(theirs["agents", "action"].unbind(1))
        ours = roll_out(
            instance.agents,
            instance.train_environment,
            instance.train_environment.begin(iteration),
            lambda distribution, actions=actions: next(actions),
            num_steps=rounds,
        )
        for key in (
            "message_history",
            "mask",
            ("agents", "decision_mask"),
            ("next", "agents", "reward"),
        ):
            assert torch.equal(ours[key], theirs[key]), key
        turns = ours["agents", "message_mask"].any(-1)
        both = ours["agents", "action_log_prob"], theirs["agents", "action_log_prob"]
        assert torch.allclose(both[0][turns], both[1][turns], atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_an_episode_is_over_for_its_agents_when_it_is_and_labels_stand_apart() -> None:
    config = ludus.example("vanilla_ppo").replace(
        **{
            "scenario.train_size": 16,
            "scenario.validation_size": 4,
            "scenario.test_size": 4,
            "protocol.min_message_rounds": 1,
        }
    )
    own = build_scenario_instance(
        config,
        device=torch.device("cpu"),
        trainer_type="rl",
        num_envs=16,
        num_judged=4,
        use_shared_body=True,
    )
    env, environment = ArenaEnv(own.train_environment, 16), own.train_environment
    torch.manual_seed(0)
    td = env.rollout(3, make_actor(own.agents), break_when_any_done=False)
    actions = iter(td["agents", "action"].unbind(1))
    ours = roll_out(
        own.agents, environment, environment.begin(0), lambda one: next(actions), num_steps=3
    )
    done = td["next", "agents", "done"]
    assert torch.equal(done, ours["next", "agents", "done"])
    assert 0 < int(done[:, 0].sum()) < done[:, 0].numel()
    # Whoever is over waits: the envs are reset together.
    assert td["next", "done"][:, :, 0].tolist() == [[False, False, True]] * 16
    assert {"y", "seed"}.isdisjoint(env.observation_spec.keys())
    assert torch.equal(td["hidden", "y"], ours["y"])


@pytest.mark.filterwarnings("ignore")
def test_a_step_before_the_first_reset_is_a_sentence(instance: ScenarioInstance) -> None:
    env = ArenaEnv(instance.train_environment, 16)
    with pytest.raises(LudusError, match="call reset"):
        env._step(env.fake_tensordict())
