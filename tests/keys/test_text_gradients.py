"""What each key of policy gradients of text does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ludus
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from ludus.text.policy_gradient.answers import advantages
from tests.keys.table import changes
from tests.text.small_run import small_pg

PG = "pure_text_pg"
PPO = {"kind": "ppo", "clip": 0.2}
REWARDS = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
GROUPS = np.array([0, 0, 0, 1, 1, 1])


def provider_of(**changed: Any) -> Any:
    """Return the provider of a small run, with all that it was asked for."""
    quiet = {"rl.num_test_iterations": 0, "text_rl.test_scheme": "none", "pretraining": None}
    trainer: Any = ludus.build_trainer(small_pg(**{**quiet, **changed}))
    trainer.fit(runtime=InMemoryRuntime)
    return trainer.connection.provider


def steps_of(**changed: Any) -> list[Any]:
    found = provider_of(**changed).steps
    assert found
    return list(found)


@changes(PG, "policy_gradient.loss")
def test_the_loss_is_the_one_that_is_named(kind: str) -> None:
    assert {one[0] for one in provider_of().losses} == {"ppo"}
    other = {"kind": "importance_sampling"}
    losses = provider_of(**{"policy_gradient.loss": other}).losses
    assert {(name, *options) for name, _, options in losses} == {("importance_sampling",)}
    narrow = provider_of(**{"policy_gradient.loss": {**PPO, "clip": 0.1}}).losses
    assert {one[2]["clip_low_threshold"] for one in narrow} == {0.9}
    assert {one[2]["clip_high_threshold"] for one in narrow} == {1.1}


@changes(PG, "policy_gradient.baseline")
def test_the_baseline_is_the_mean_of_the_iteration_or_of_the_question(kind: str) -> None:
    both = [
        advantages(REWARDS, GROUPS, baseline=name, normalise=False)
        for name in ("iteration", "question")
    ]
    assert both[0] == pytest.approx(REWARDS - 0.5)
    assert both[1] == pytest.approx([1 / 3, -2 / 3, 1 / 3, 2 / 3, -1 / 3, -1 / 3])
    with pytest.raises(ConfigError, match="an episode is its own baseline"):
        small_pg(**{"policy_gradient.baseline": "question", "rl.rollouts_per_question": 1})


@changes(PG, "policy_gradient.normalise")
def test_advantages_are_divided_by_the_deviation_and_equal_rewards_have_none(kind: str) -> None:
    found = advantages(REWARDS, GROUPS, baseline="question", normalise=True)
    for group in (0, 1):
        own = found[group == GROUPS]
        assert (own.mean(), own.std()) == (pytest.approx(0), pytest.approx(1))
    equal = advantages(np.full(4, 0.3), np.zeros(4), baseline="question", normalise=True)
    assert equal.tolist() == [0.0] * 4


@changes(PG, "policy_gradient.num_epochs", "policy_gradient.minibatch_size")
def test_each_pass_has_all_answers_in_minibatches(kind: str) -> None:
    once = provider_of(**{"policy_gradient.num_epochs": 1, "max_iterations": 2})
    sizes = [size for _, size, _ in once.losses]
    assert set(sizes[:-1]) <= {8}
    assert len(sizes) > 1
    twice = provider_of(**{"policy_gradient.num_epochs": 2, "max_iterations": 2})
    assert [size for _, size, _ in twice.losses] == sizes * 2
    whole = provider_of(
        **{
            "policy_gradient.num_epochs": 1,
            "policy_gradient.minibatch_size": 64,
            "max_iterations": 2,
        }
    )
    assert [size for _, size, _ in whole.losses] == [sum(sizes)]


@changes(
    PG,
    "policy_gradient.optimizer.beta1",
    "policy_gradient.optimizer.beta2",
    "policy_gradient.optimizer.eps",
    "policy_gradient.optimizer.weight_decay",
    "policy_gradient.optimizer.max_grad_norm",
)
def test_each_step_is_taken_with_these_numbers(kind: str) -> None:
    numbers = {"beta1": 0.5, "beta2": 0.6, "eps": 1e-3, "weight_decay": 0.1, "max_grad_norm": 2.0}
    changed = {f"policy_gradient.optimizer.{name}": value for name, value in numbers.items()}
    for step in steps_of(**changed, max_iterations=2):
        assert {name: getattr(step, name) for name in numbers} == numbers


@changes(PG, "policy_gradient.optimizer.learning_rate", "policy_gradient.optimizer.anneal")
def test_the_learning_rate_is_that_of_the_first_iteration_and_may_fall(kind: str) -> None:
    rate = {"policy_gradient.optimizer.learning_rate": 0.25, "max_iterations": 5}
    constant = steps_of(**rate, **{"policy_gradient.optimizer.anneal": "none"})
    assert {step.learning_rate for step in constant} == {0.25}
    falling = [step.learning_rate for step in steps_of(**rate)]
    assert sorted({*falling}, reverse=True) == [0.25, 0.1875, 0.125, 0.0625]
    assert falling == sorted(falling, reverse=True)


@changes(PG, "policy_gradient.lora_rank")
def test_the_model_is_created_with_an_adapter_of_this_rank(kind: str) -> None:
    assert [one["lora_rank"] for one in provider_of(max_iterations=2).created] == [None]
    ranked = provider_of(**{"policy_gradient.lora_rank": 4, "max_iterations": 2})
    assert [one["lora_rank"] for one in ranked.created] == [4]


def test_a_provider_that_trains_nothing_by_gradients_is_refused() -> None:
    with pytest.raises(ConfigError, match="whose models are not trained by gradients; use tinker"):
        small_pg(provider={"kind": "tabular"})


def test_demonstrations_are_imitated_by_gradients_before_the_first_iteration() -> None:
    found = provider_of(
        pretraining={
            "num_episodes": 6, "num_epochs": 2, "batch_size": 4, "learning_rate_multiplier": 3.0,
        },
        max_iterations=1,
    )  # fmt: skip
    assert [(name, size) for name, size, _ in found.losses] == [
        ("cross_entropy", n) for n in (4, 2, 4, 2)
    ]
    assert [step.learning_rate for step in found.steps] == pytest.approx([3 * 5e-4] * 4)


def test_agents_learn_by_policy_gradients() -> None:
    trainer: Any = ludus.build_trainer(
        small_pg(
            **{
                "scenario.num_seen": 5,
                "rl.rollouts_per_iteration": 160,
                "rl.rollouts_per_question": 8,
                "max_iterations": 8,
                "pretraining.num_episodes": 64,
                "text_rl.test_scheme": "none",
            }
        )
    )
    found: list[float] = []
    trainer.add(_Curve(found))
    trainer.fit(runtime=InMemoryRuntime)
    assert found[-1] > 0.9 > 0.7 > found[0]


class _Curve:
    def __init__(self, found: list[float]) -> None:
        self._found = found

    def after_log_stats(self, run: Any) -> None:
        self._found.append(run.log.written["train/accuracy"])
