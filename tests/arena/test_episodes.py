"""Kept agents are tested in as many episodes as are asked for, neither more nor fewer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import ludus
from tests.arena.pettingzoo.made import prepared, small_counting
from tests.arena.small import QUIET, example, small_arena


class ExtentParameters(ludus.StrictConfig):
    """There is nothing to be told."""

    kind: Literal["tests_extent"]
    """How many episodes there are, and which data they are about."""


@ludus.register("analyser", "tests_extent")
class Extent(ludus.Analyser):
    Config = ExtentParameters

    def analyse(self, rollouts: Any, environment: Any) -> Any:
        return {"episodes": float(len(rollouts)), "data": rollouts["index"][:, 0].double().sum()}


def counted(**changed: Any) -> Any:
    """Return the config of a run with 8 episodes an iteration and 2 iterations of tests."""
    return small_arena(analysers=[{"kind": "tests_extent"}], max_iterations=1, **changed)


@pytest.mark.covers("002-S5")
@pytest.mark.parametrize("episodes", [1, 3, 8, 11, 16, 20])
def test_kept_weights_are_evaluated_in_so_many_episodes_the_first_of_the_test(
    episodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = prepared(counted(keep_every_iterations=0))
    environment, begun = trainer.scenario_instance.test_environment, []
    begin = environment.begin
    monkeypatch.setattr(environment, "begin", lambda index: begun.append(index) or begin(index))
    found = trainer.evaluate_weights(trainer.weights(), episodes=episodes)
    assert found["eval/tests_extent/episodes"] == episodes
    assert begun == [*range(math.ceil(episodes / 8))]
    data = [one for index in range(3) for one in environment.data_index(index).tolist()]
    assert found["eval/tests_extent/data"] == sum(data[:episodes])


@pytest.mark.parametrize(("iterations", "played"), [(0, 8), (1, 8), (2, 16)])
def test_without_a_number_there_are_as_many_episodes_as_in_the_test_of_the_run(
    iterations: int, played: int
) -> None:
    trainer = prepared(counted(keep_every_iterations=0, **{"rl.num_test_iterations": iterations}))
    found = trainer.evaluate_weights(trainer.weights())
    assert found["eval/tests_extent/episodes"] == played


@pytest.mark.parametrize("episodes", [1, 2, 3])
def test_envs_are_counted_by_the_episode_too(episodes: int) -> None:
    # Two envs play side by side, three steps each.
    trainer = prepared(small_counting())
    found = trainer.evaluate_weights(trainer.weights(), episodes=episodes)
    assert found["eval/episodes"] == episodes
    assert found["eval/rounds"] == 3.0


def test_a_rerun_tests_each_model_in_so_many_episodes(tmp_path: Path) -> None:
    run = ludus.build_trainer(counted(keep_every_iterations=0)).fit(root=str(tmp_path), name="run")
    keys = {"run": str(run.run_dir), "models": ["final"], "episodes": 5}
    tests = ludus.build_trainer(example("rerun_tests").replace(**QUIET, **keys))
    result = tests.fit(root=str(tmp_path), name="tests")
    (line,) = Path(str(result.run_dir), "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["test/tests_extent/episodes"] == 5


@pytest.mark.covers("002-S5")
def test_episodes_that_end_early_are_padded_to_all_rounds_and_masked() -> None:
    rounds = {"protocol.max_message_rounds": 6, "rl.minibatch_size": 12}
    instance = ludus.build_scenario_instance(small_arena(**rounds))
    environment, verifier = instance.train_environment, instance.agents.names.index("verifier")

    def accepting_half(distribution: Any) -> torch.Tensor:
        action = torch.zeros_like(distribution.mode)
        action[:, verifier, 0] = 2
        action[::2, verifier, 0] = 1
        return action

    def played(choose: Any, num_steps: int) -> Any:
        begun = environment.begin(0)
        return ludus.roll_out(instance.agents, environment, begun, choose, num_steps=num_steps)

    rollouts = played(accepting_half, 6)
    assert rollouts.batch_size == (8, 6)
    # The prover speaks, then the verifier decides: half of the episodes have two rounds, the others all six.
    assert rollouts["mask"].sum(1).tolist() == [2, 6] * 4
    assert rollouts["mask"][::2].tolist() == [[True, True, False, False, False, False]] * 4
    after = rollouts[::2, 2:]
    assert not after["agents", "decision_mask"].any()
    assert not after["agents", "message_mask"].any()
    assert not after["next", "agents", "reward"].any()
    assert after["next", "agents", "done"].all()
