"""What the benchmarks say about active learning is worked out by hand, and what they compare is alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ludus
from benchmarks import (
    _arena_work,
    _games_dqn,
    _learning_ludus,
    _pictures_ludus,
    _real_ludus,
    _real_work,
    _rl_ludus,
)
from benchmarks._active_ludus import STRATEGIES, config_of
from benchmarks._active_peers import Plain
from benchmarks._active_tables import TABLES, accuracy, first_rows, pool_and_test
from benchmarks._learning_tasks import TASKS
from benchmarks._rl_work import WORKS
from benchmarks.active_learning import labels_to, rows_of
from ludus.core.runtime import InMemoryRuntime

CURVE = [[20, 0.5], [40, 0.7], [60, 0.6], [80, 0.9]]


def test_labels_to_an_accuracy_are_read_off_the_line_that_first_reaches_it() -> None:
    assert labels_to(0.65, CURVE) == pytest.approx(35)
    assert labels_to(0.75, CURVE) == pytest.approx(70)
    assert labels_to(0.5, CURVE) == labels_to(0.1, CURVE) == 20
    assert labels_to(0.9, CURVE) == pytest.approx(80)


def test_a_run_that_never_reaches_the_accuracy_counts_one_round_more_than_its_budget() -> None:
    assert labels_to(0.95, CURVE) == 100


def test_strategies_are_compared_at_what_uniform_sampling_reaches_with_its_whole_budget() -> None:
    slow = [[[20, 0.4], [40, 0.6]], [[20, 0.4], [40, 0.8]]]
    fast = [[[20, 0.5], [40, 0.9]], [[20, 0.5], [40, 0.6]]]
    curves = {"ludus": {"uniform": slow, "margin": fast}, "modAL": {"margin": slow}}
    rows = {(row.work, row.system): row for row in rows_of("t", curves)}
    assert rows["t, uniform: labels to 70.0%", "ludus"].values == pytest.approx((60, 35))
    assert rows["t, margin: labels to 70.0%", "ludus"].values == pytest.approx((30, 60))
    won = rows["t, margin: seeds with fewer labels than uniform", "ludus"]
    assert (won.value, won.unit, won.values) == (1, "of 2", (1, 0))
    assert rows["t, uniform: seeds with fewer labels than uniform", "ludus"].value == 0
    ratio = rows["t, margin: labels to 70.0%", "ludus"].ratio
    assert ratio == pytest.approx(47.5 / 45)
    assert rows["t, margin: mean accuracy", "modAL"].value == pytest.approx(55)


@pytest.mark.parametrize("name", TABLES)
def test_the_plain_loop_has_the_pool_the_first_labels_and_the_first_weights_of_the_run(
    name: str,
) -> None:
    table = replace(TABLES[name], max_rounds=1, max_epochs=1)
    trainer = ludus.build_trainer(config_of(table, 3, STRATEGIES["uniform"]))
    first: list[torch.Tensor] = []

    class Watch:
        def before_query(self) -> None:
            first.extend(one.clone() for one in trainer.model.module.state_dict().values())

    trainer.add(Watch())
    trainer.fit(runtime=InMemoryRuntime)
    (inputs, labels), test = pool_and_test(table, 3)
    asked = first_rows(table, len(labels), 3)
    assert torch.equal(trainer.pool.labelled, asked)
    assert torch.equal(trainer.pool.labels, labels[asked])
    assert torch.equal(trainer.examples.inputs(asked), inputs[asked])
    plain = Plain(table, 3)
    others = plain.module.state_dict().values()
    assert all(torch.equal(one, other) for one, other in zip(first, others, strict=True))
    told = trainer.evaluate(trainer.evaluators["test"])["test/accuracy"]
    assert accuracy(trainer.model.module, test) == pytest.approx(told)


def test_the_plain_loop_begins_each_fit_anew() -> None:
    table = replace(TABLES["digits"], max_epochs=2)
    (inputs, labels), _ = pool_and_test(table, 0)
    plain = Plain(table, 0)
    plain.fit(inputs[:40], labels[:40])
    first = plain.says(inputs[:10])
    plain.fit(inputs[40:90], labels[40:90])
    plain.fit(inputs[:40], labels[:40])
    again = plain.says(inputs[:10])
    assert (first[0] == again[0]).all()
    assert first[1].shape == (10, 128)


def test_the_configs_of_the_benchmarks_are_valid() -> None:
    """They are built of keys that nothing else reads, so a renamed key would show when they are run."""
    for work in WORKS.values():
        assert _rl_ludus.config_of(work, "tape", "fp32").kind == work.kind
    assert _games_dqn.config(torch.device("cpu"), 100, "float32", 2).kind == "fused_dqn"
    assert _arena_work.config_of(16, "cpu").kind == "vanilla_ppo"
    for name in _real_work.WORKS["cpu"]:
        assert _real_ludus.make_trainer(name, "cpu", "eager").config.engine == "eager"
    pictures = _pictures_ludus.make_config(
        _real_work.WORKS["cpu"]["small ResNet"], "cpu", 2, Path("x")
    )
    assert (pictures.data.kind, pictures.settings.workers) == ("image_folder", 2)
    for task, name in _learning_ludus.CONFIGS.items():
        config = ludus.example(name).replace(**{"evaluation.target": None})
        config.replace(**_learning_ludus._length(config, TASKS[task]))
