"""The plan of a run of text: five stages an iteration, tests by the scheme, a final test, saved models."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.tasks import render_plan
from ludus.core.errors import ConfigError
from ludus.core.runtime import InMemoryRuntime
from tests.text.small_run import small_malt
from tests.text.trainers.runs import TINY, metrics, tiny_ei, train

STAGES = {
    "sample_rollouts": "sample",
    "log_stats": "log",
    "test": "test",
    "create_fine_tune_jobs": "create",
    "await_fine_tune_jobs": "await",
    "final_test": "final test",
    "save_models": "save",
}


class Heard:
    """Notes the stages as they begin, with the number of their iteration."""

    def __init__(self, trainer: Any) -> None:
        self.stages: list[str] = []
        names = re.findall(r"[a-z_]+", render_plan(trainer.config))
        for name in {*STAGES} & {*names}:
            setattr(self, f"before_{name}", functools.partial(self._note, trainer, name))

    def _note(self, trainer: Any, name: str) -> None:
        self.stages.append(f"{trainer.run.counters['iteration']} {STAGES[name]}")


def stages(**changes: Any) -> list[str]:
    """Return the stages of a run as they begin."""
    trainer: Any = ludus.build_trainer(tiny_ei(**changes))
    trainer.set_logger(ludus.Logger({"backends": []}))
    heard = Heard(trainer)
    trainer.add(heard)
    trainer.fit(runtime=InMemoryRuntime)
    return heard.stages


def drawn(config: Any) -> list[str]:
    """Return the nodes of the plan that `ludus plan` draws, without what is said of each."""
    return [line.strip(" |-`+") for line in render_plan(config).splitlines() if line.strip()]


@pytest.mark.covers("002-M9", "002-S5")
def test_an_iteration_has_five_stages_in_order_and_the_last_one_tunes_nothing() -> None:
    assert stages(**{"text_rl.test_scheme": "all"}) == [
        *("0 sample", "0 log", "0 test", "0 create", "0 await"),
        *("1 sample", "1 log", "1 test"),
        *("2 final test", "2 save"),
    ]


@pytest.mark.covers("002-S5", "002-M11")
@pytest.mark.parametrize(
    ("scheme", "tested"),
    [("none", []), ("all", [0, 1, 2]), ("last", [2]), ("first_and_last", [0, 2])],
)
def test_agents_are_tested_in_just_the_iterations_of_the_scheme(
    scheme: str, tested: list[int]
) -> None:
    found = stages(max_iterations=3, **{"text_rl.test_scheme": scheme})
    assert [int(one[0]) for one in found if one.endswith(" test") and "final" not in one] == tested


def test_a_single_iteration_is_the_first_and_the_last_and_is_tested_once() -> None:
    found = stages(max_iterations=1, **{"text_rl.test_scheme": "first_and_last"})
    assert found == ["0 sample", "0 log", "0 test", "1 final test", "1 save"]


@pytest.mark.parametrize("scheme", ["none", "all", "last", "first_and_last"])
def test_the_drawn_plan_says_when_agents_are_tested(scheme: str) -> None:
    note = {
        "none": "never",
        "all": "every iteration",
        "last": "the last iteration",
        "first_and_last": "the first and the last iteration",
    }[scheme]
    tests = [one for one in drawn(tiny_ei(**{"text_rl.test_scheme": scheme})) if one[:5] == "test "]
    assert [note in line for line in tests] == [True]


@pytest.mark.parametrize("make", [tiny_ei, lambda **more: small_malt(**{**TINY, **more})])
def test_the_drawn_plan_has_the_stages_that_the_config_asks_for_and_no_others(make: Any) -> None:
    def names(**changes: Any) -> list[str]:
        return [line.split()[0] for line in drawn(make(**changes))]

    jobs = ["create_fine_tune_jobs", "await_fine_tune_jobs"]
    every = ["sample_rollouts", "log_stats", "test", *jobs]
    assert names() == ["train", "iteration", *every, "final_test", "save_models"]
    pretraining = {"num_episodes": 4, "num_epochs": 1, "batch_size": 8}
    pretraining["learning_rate_multiplier"] = 1.0  # type: ignore[assignment]
    assert names(pretraining=pretraining)[1:3] == ["pretrain", "await_pretraining"]
    assert "final_test" not in names(**{"rl.num_test_iterations": 0})
    assert not {*jobs} & {*names(max_iterations=1)}


@pytest.mark.covers("002-M11")
def test_the_paths_of_the_guide_are_those_of_the_parameters() -> None:
    trainer: Any = ludus.build_trainer(
        tiny_ei(max_iterations=5, **{"rl.num_test_iterations": 3, "text_rl.test_scheme": "last"})
    )
    assert trainer.hyper_params.rl.num_iterations == 5
    assert trainer.hyper_params.rl.num_test_iterations == 3
    assert trainer.hyper_params.text_rl.test_scheme == "last"
    longer: Any = ludus.build_trainer(trainer.config.replace(max_iterations=6))
    assert longer.hyper_params.rl.num_iterations == 6


@pytest.mark.covers("002-D4")
def test_the_final_test_plays_the_held_out_questions_with_the_final_models(tmp_path: Path) -> None:
    run_dir = train(tmp_path, **{"text_rl.test_scheme": "last", "rl.num_test_iterations": 2})
    # At temperature 0 the final models, which are those of the last iteration, answer as in its test.
    (last,), (final,) = (metrics(run_dir, f"{name}/accuracy") for name in ("test", "final_test"))
    assert final == last
    lines = (run_dir / "transcripts/test-final_test-0.jsonl").read_text().splitlines()
    trainer: Any = ludus.build_trainer(tiny_ei())
    datasets = trainer.config.make_scenario().make_datasets(trainer.config.seed)
    held_out = {datasets.test.row(place)["letters"] for place in range(len(datasets.test))}
    assert len(lines) == 2 * len(held_out)
    assert all(any(question in line for question in held_out) for line in lines)


def test_without_a_final_test_and_a_scheme_nothing_is_tested(tmp_path: Path) -> None:
    run_dir = train(tmp_path, **{"text_rl.test_scheme": "none", "rl.num_test_iterations": 0})
    assert not [row for row in (run_dir / "metrics.jsonl").read_text().split('"') if "test" in row]
    assert not [*run_dir.glob("transcripts/test*")]
    assert not (run_dir / "models/best").exists()


def test_the_length_in_optimisation_steps_is_refused_with_the_key_that_counts() -> None:
    trainer: Any = ludus.build_trainer(tiny_ei())
    with pytest.raises(ConfigError, match=r"fit\(max_steps=...\) cannot .*'max_iterations'"):
        trainer.fit(5, runtime=InMemoryRuntime)


def test_tests_of_a_part_of_the_questions_go_on_where_the_last_one_ended() -> None:
    trainer: Any = ludus.build_trainer(tiny_ei(**{"text_rl.test_on_whole_dataset": False}))
    trainer.set_logger(ludus.Logger({"backends": []}))
    places: list[list[int]] = []
    episodes = trainer.episodes

    def noted(split: str, given: Any, each: int, iteration: int) -> Any:
        if split == "test":
            assert each == 1
            places.append(list(given))
        return episodes(split, given, each, iteration)

    trainer.episodes = noted
    trainer.fit(runtime=InMemoryRuntime)
    order = trainer.questions["test"]
    assert places[:2] == [order.take(0, 2), order.take(1, 2)]
    assert len(places) == 3


def test_every_variant_of_a_protocol_is_about_every_question_and_none_is_tied_to_its_place() -> (
    None
):
    trainer: Any = ludus.build_trainer(tiny_ei())
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    seeds = [one.seed for group in trainer.episodes("train", [3, 5, 3], 4, 1) for one in group]
    for start in (0, 4, 8):
        assert [seed % 2 for seed in seeds[start : start + 4]] in ([0, 1, 0, 1], [1, 0, 1, 0])
    firsts = [
        trainer.episodes("test", [0] * 16, 1, iteration)[place][0].seed % 2
        for iteration in (0, 1)
        for place in range(16)
    ]
    assert {0, 1} == {*firsts[:16]} == {*firsts[16:]}
    assert firsts[:16] != firsts[16:]
