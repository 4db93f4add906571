"""Agents that learn alone: what is learned, judged, tested and kept; what each key does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import ludus
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from tests.arena.sections import TINY, parts
from tests.arena.small import MLP
from tests.arena.small_solo import small_solo


def fitted(config: Any) -> Any:
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(runtime=InMemoryRuntime)
    return trainer


def records(config: Any, root: Path) -> list[dict[str, Any]]:
    result = ludus.build_trainer(config).fit(root=str(root))
    lines = Path(str(result.run_dir), "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.covers("002-M8")
def test_an_agent_learns_the_parity_of_two_bits() -> None:
    trainer = fitted(
        small_solo(
            **{
                "scenario": {**TINY, "train_size": 64, "test_size": 64},
                "agents": {"verifier": parts({"kind": "mlp", "widths": [32]})},
                "max_iterations": 30,
                "solo_agent.batch_size": 16,
                "optimizer.learning_rate": 0.03,
                "evaluate_every_iterations": 0,
                "log_every_iterations": 0,
            }
        )
    )
    found = trainer.evaluate_weights(trainer.weights())
    assert found["eval/verifier/accuracy"] > 0.95


@pytest.mark.covers("002-S1")
def test_the_loss_is_the_cross_entropy_of_each_agent_and_its_gradient_moves_the_weights() -> None:
    sgd = {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": False}
    config = small_solo(
        **{
            "max_iterations": 1,
            "solo_agent.batch_size": 20,
            "optimizer": {**sgd, "weight_decay": 0.0},
            "max_grad_norm": None,
            "keep_every_iterations": 0,
        }
    )
    trainer: Any = ludus.build_trainer(config)
    trainer.prepare(max_steps=None)
    *data, y_N = trainer._passes(0, 0)
    rows = trainer.students._rows(data)
    losses = [
        functional.cross_entropy(trainer.agents.member(name).solo(rows), y_N)
        for name in trainer.agents.names
    ]
    named = dict(trainer.agents.named_parameters())
    gradients = torch.autograd.grad(sum(losses), list(named.values()), allow_unused=True)
    expected = {
        name: weight - 0.1 * (0.0 if gradient is None else gradient)
        for (name, weight), gradient in zip(named.items(), gradients, strict=True)
    }
    trainer.fit(runtime=InMemoryRuntime)
    for name, weight in trainer.agents.named_parameters():
        torch.testing.assert_close(weight, expected[name])


def test_agents_are_judged_together_and_each_by_itself(tmp_path: Path) -> None:
    result = ludus.build_trainer(small_solo()).fit(root=str(tmp_path))
    assert result.best["metric"] == "eval/accuracy"
    assert set(result.more_bests) == {"verifier", "prover"}
    for agent, best in result.more_bests.items():
        assert best["metric"] == f"eval/{agent}/accuracy"
        assert Path(str(result.run_dir), best["model"], "weights.safetensors").exists()
    alone = small_solo(agents={"verifier": parts(MLP)})
    assert not ludus.build_trainer(alone).fit(root=str(tmp_path), name="alone").more_bests


def test_accuracies_are_logged_for_each_agent_and_for_all(tmp_path: Path) -> None:
    *before, evaluated, tested = records(small_solo(), tmp_path)
    for row, phase in ((evaluated, "eval"), (tested, "test")):
        mean = (row[f"{phase}/verifier/accuracy"] + row[f"{phase}/prover/accuracy"]) / 2
        assert row[f"{phase}/accuracy"] == pytest.approx(mean)
    assert "eval/accuracy" not in before[0]


@pytest.mark.covers("002-D8")
def test_the_order_of_the_data_follows_from_the_seed_and_the_iteration() -> None:
    def orders(seed: int) -> list[list[float]]:
        trainer: Any = ludus.build_trainer(small_solo(seed=seed, **{"scenario.num_bits": 12}))
        trainer.prepare(max_steps=None)
        torch.manual_seed(torch.seed())  # what else is drawn in the process does not matter
        return [trainer._passes(i, 0)[0].flatten().tolist() for i in range(2)]

    assert orders(0) == orders(0)
    assert orders(0)[0] != orders(0)[1]
    assert orders(0) != orders(1)


@pytest.mark.covers("002-D8")
def test_the_test_runs_in_the_test_context_and_has_a_progress_bar() -> None:
    trainer: Any = ludus.build_trainer(small_solo())
    seen: list[tuple[str, bool, bool]] = []

    def watched(context: str, build: Any) -> Any:
        def entered(stack: Any) -> None:
            build(stack)
            seen.append((context, torch.is_grad_enabled(), trainer.agents.training))

        return entered

    trainer._build_train_context = watched("train", trainer._build_train_context)
    trainer._build_test_context = watched("test", trainer._build_test_context)
    trainer.fit(runtime=InMemoryRuntime)
    assert set(seen) == {("train", True, True), ("test", False, False)}
    assert seen[-1] == ("test", False, False)
    # Iterations of training, and one for each agent that is tested.
    assert trainer.num_total_iterations == 3 + 2


@pytest.mark.parametrize(
    "changed",
    [
        {"solo_agent.batch_size": 5},
        {"solo_agent.max_message_rounds": 3},
        {"solo_agent.num_channels": 2},
        {"max_iterations": 2},
        {"max_grad_norm": 0.01},
        {"optimizer.learning_rate": 0.02},
        {"learning_rate_schedule": {"kind": "constant", "warmup_steps": 4}},
        {"seed": 1},
    ],
)
def test_each_key_changes_what_is_learned(changed: dict[str, Any]) -> None:
    one, other = (fitted(config).weights() for config in (small_solo(), small_solo(**changed)))
    same = one.keys() == other.keys()
    assert not same or not all(
        one[name].shape == other[name].shape and torch.equal(one[name], other[name]) for name in one
    )


def test_intervals_say_when_it_is_judged_recorded_and_kept(tmp_path: Path) -> None:
    found = records(small_solo(log_every_iterations=0), tmp_path / "a")
    assert [row.get("iteration") for row in found] == [2, 3, 3]
    found = records(small_solo(evaluate_every_iterations=0), tmp_path / "b")
    assert [row.get("iteration") for row in found] == [1, 2, 3, 3]
    kept = {one.name for one in (tmp_path / "a").glob("*/models/*") if one.name.isdigit()}
    assert kept == {"6"}


def test_patience_and_target_end_the_run(tmp_path: Path) -> None:
    still = {"optimizer.learning_rate": 1e-30, "evaluate_every_iterations": 1}
    ended = ludus.build_trainer(small_solo(**still, **{"evaluation.patience": 1}))
    assert "has not improved for 1 evaluations" in str(ended.fit(root=str(tmp_path)).reason)
    reached = ludus.build_trainer(small_solo(**still, **{"evaluation.target": 0.0}))
    result = reached.fit(root=str(tmp_path), name="reached")
    assert result.counters["iteration"] == 1


def test_fit_takes_a_length_in_whole_iterations(tmp_path: Path) -> None:
    result = ludus.build_trainer(small_solo()).fit(4, root=str(tmp_path))
    assert result.counters["opt_steps"] == 6
    events = Path(str(result.run_dir), "events.jsonl").read_text()
    assert "2 whole iterations of 3" in events


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"agents": {}}, "'agents' is empty"),
        (
            {
                "agents": {
                    "verifier": parts(MLP, update_schedule={"kind": "constant", "learns": False})
                }
            },
            "the only agent, verifier, is frozen in all 3 iterations",
        ),
        ({"keep_every_iterations": 9}, "'keep_every_iterations' is 9"),
        ({"agents": {"The judge": parts(MLP)}}, "lower-case"),
    ],
)
def test_what_cannot_be_is_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ludus.build_trainer(small_solo(**changed)).fit(runtime=InMemoryRuntime)


def test_a_schedule_longer_than_the_run_is_refused() -> None:
    schedule = {"kind": "constant", "warmup_steps": 99}
    with pytest.raises(ConfigError, match="learning_rate_schedule"):
        fitted(small_solo(learning_rate_schedule=schedule))


def test_an_evaluation_that_ends_the_run_is_recorded_with_its_training(tmp_path: Path) -> None:
    ending = {"evaluate_every_iterations": 1, "log_every_iterations": 0, "evaluation.target": 0.0}
    first, last = records(small_solo(max_iterations=3, **ending), tmp_path)
    assert first["iteration"] == 1
    assert {"eval/accuracy", "train/loss"} <= first.keys()
    assert "test/accuracy" in last
