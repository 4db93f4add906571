"""What agents of text learn from: selected rollouts, earlier ones, demonstrations, and sometimes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import ludus
from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from ludus.text.chat import ChatMessage
from ludus.text.nested import NestedArrayDict
from ludus.text.trainer import PureTextRlTrainer
from ludus.text.trainers.pure_text_ei import PureTextEiTrainer
from tests.arena.protocols.made import SPOKEN, section
from tests.text.small import PROMPT
from tests.text.small_run import small_malt
from tests.text.trainers.faulty_tables import faulty, jobs, tables, training_file
from tests.text.trainers.runs import (
    TINY,
    events,
    metrics,
    models_of,
    rows,
    tiny_ei,
    train,
    trained,
)

THRESHOLD = "expert_iteration.selection.reward_threshold"
WEIGHTED = {"kind": "weighted", "size_factor": 0.5, "epsilon": 0.0}
ONE = {"agents.verifier.group": "pair", "agents.prover.group": "pair"}
DEMONSTRATIONS = {
    "num_episodes": 24,
    "num_epochs": 3,
    "batch_size": 8,
    "learning_rate_multiplier": 2.0,
}


def counts(run_dir: Path) -> list[float]:
    """Return the number of examples of each job of the only group, in order; each is of the first model."""
    models = tables(run_dir)["models"]
    return [
        sum(sum(row.values()) for row in models[job["tuned"]].values())
        for job in jobs(run_dir).values()
    ]


@pytest.mark.covers("002-S5", "002-D13")
@pytest.mark.parametrize(("is_all", "expected"), [(False, [16, 16]), (True, [16, 32])])
def test_agents_learn_from_this_iteration_or_from_all_so_far(
    is_all: bool, expected: list[int], tmp_path: Path
) -> None:
    changes = {
        "text_rl.fine_tune_on_all_previous_rollouts": is_all,
        "text_rl.fine_tune_from_scratch": True,
    }
    run_dir = train(tmp_path, max_iterations=3, **ONE, **{THRESHOLD: 0.0}, **changes)
    assert counts(run_dir) == expected


@pytest.mark.covers("002-S7")
def test_pairs_from_all_previous_rollouts_are_answers_to_the_same_prompt(tmp_path: Path) -> None:
    """The first questions of two iterations are two trees."""
    config = small_malt(
        **{**TINY, "rl.rollouts_per_iteration": 80, "max_iterations": 3},
        **{
            "text_rl.fine_tune_on_all_previous_rollouts": True,
            "text_rl.fine_tune_from_scratch": True,
        },
    )
    trained(config, tmp_path)
    run_dir = tmp_path / "run"
    said = {
        (json.dumps(prompt), text) for number in (0, 1) for prompt, text in turns(run_dir, number)
    }
    sizes: dict[str, list[int]] = {}
    for job_id, job in jobs(run_dir).items():
        lines = training_file(run_dir, job_id)
        sizes.setdefault(job["group"], []).append(len(lines))
        for line in lines:
            prompt = [[one["role"], one["content"]] for one in line["input"]["messages"]]
            for side in ("preferred_output", "non_preferred_output"):
                assert (json.dumps(prompt), line[side][0]["content"]) in said
    first, second = sizes["verifier"]
    assert second > first


def turns(run_dir: Path, iteration: int) -> list[tuple[Any, str]]:
    """Return each prompt and answer of the training episodes of an iteration."""
    rollouts = NestedArrayDict.from_bytes(
        (run_dir / f"rollouts/train-{iteration}.safetensors").read_bytes()
    )
    active = rollouts["agents", "active"]
    prompts, texts = (rollouts["agents", name][active] for name in ("prompt", "text"))
    return [(json.loads(str(one)), str(text)) for one, text in zip(prompts, texts, strict=True)]


@pytest.mark.covers("002-S6")
def test_a_selection_without_examples_is_skipped_aloud_and_the_run_goes_on(tmp_path: Path) -> None:
    run_dir = train(tmp_path, max_iterations=3, **ONE, **{THRESHOLD: 2.5})
    told = events(run_dir, "empty_selection")
    assert told == [
        f"iteration {number}: nothing was selected for the group 'pair': it keeps its model"
        for number in (0, 1)
    ]
    assert models_of(run_dir) == {"pair": "tiny"}
    assert len(metrics(run_dir, "train/accuracy")) == 3


@pytest.mark.covers("002-S8")
def test_fewer_examples_than_the_provider_takes_make_no_job(tmp_path: Path) -> None:
    run_dir = train(tmp_path, **ONE, **{THRESHOLD: 0.0}, provider=faulty(least=17))
    (told,) = events(run_dir, "few_examples")
    assert told == (
        "iteration 0: 16 examples were selected for the group 'pair', and the provider takes 17 or"
        " more: it keeps its model"
    )
    assert jobs(run_dir) == {}
    assert len(jobs(train(tmp_path, name="enough", **ONE, **{THRESHOLD: 0.0}))) == 1


@pytest.mark.covers("002-D1", "002-S6")
def test_equal_rewards_are_drawn_alike_and_divide_nothing_by_zero(tmp_path: Path) -> None:
    changes = {"protocol.verifier_reward": 0.0, "expert_iteration.selection": WEIGHTED}
    run_dir = train(tmp_path, **ONE, **changes)
    assert metrics(run_dir, "train/verifier/reward") == [0.0, 0.0]
    assert counts(run_dir) == [8]


def test_pretraining_tunes_each_group_on_demonstrations_before_the_first_iteration(
    tmp_path: Path,
) -> None:
    many = {"rl.rollouts_per_iteration": 24}
    run_dir = train(tmp_path, max_iterations=1, pretraining=DEMONSTRATIONS, **many)
    assert [one["group"] for one in jobs(run_dir).values()] == ["verifier", "prover"]
    assert counts(run_dir) == [24, 24]
    assert {*models_of(run_dir).values()} == {one["tuned"] for one in jobs(run_dir).values()}
    # What was demonstrated is sampled from then on, so fewer answers cannot be read.
    plain = train(tmp_path, name="plain", max_iterations=1, **many)
    (after,), (before,) = (metrics(one, "train/verifier/malformed") for one in (run_dir, plain))
    assert after < before


def test_a_frozen_group_is_not_pretrained_either(tmp_path: Path) -> None:
    changes = {"agents.prover.frozen": True}
    run_dir = train(tmp_path, max_iterations=1, pretraining=DEMONSTRATIONS, **changes)
    assert [one["group"] for one in jobs(run_dir).values()] == ["verifier"]


def test_a_scenario_without_demonstrations_is_refused_pretraining_in_a_sentence(
    tmp_path: Path,
) -> None:
    config = tiny_ei(pretraining=DEMONSTRATIONS, **of_protocol("adp", tmp_path))
    with pytest.raises(ConfigError, match="'pretraining' needs demonstrations, and the scenario"):
        trained(config, tmp_path)


class JobsOnly(PureTextRlTrainer):
    """All that a new trainer of text has to define."""

    def _stage_create_fine_tune_jobs(self, rollouts: NestedArrayDict) -> None:
        said = rollouts["agents", "text"][0, :, :].ravel()
        for group in self.groups.values():
            group.create_supervised_fine_tune_job(
                [(ChatMessage("assistant", str(text)),) * 2 for text in said if text]
            )


class Bare(PureTextRlTrainer):
    """Defines nothing."""


@pytest.mark.covers("002-M9", "002-M2")
def test_a_trainer_of_text_defines_its_jobs_and_nothing_else(tmp_path: Path) -> None:
    result = JobsOnly(tiny_ei()).fit(root=str(tmp_path), name="run")
    assert result.status == "finished"
    assert len(jobs(tmp_path / "run")) == 2
    assert "tiny" not in models_of(tmp_path / "run").values()


@pytest.mark.covers("002-M9")
def test_a_trainer_that_does_not_is_told_which_method_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        LudusError, match="Bare defines no _stage_create_fine_tune_jobs; define it, and call"
    ):
        Bare(tiny_ei()).fit(root=str(tmp_path))


class Quiet(PureTextEiTrainer):
    """Samples as usual, and forgets what agents said; and counts what it logs."""

    def _sample_rollouts(self, episodes: Any, *, stage: str, key: str) -> NestedArrayDict:
        rollouts = super()._sample_rollouts(episodes, stage=stage, key=key)
        rollouts["agents", "reward"] = rollouts["agents", "reward"] + 100.0
        return rollouts

    def _get_log_stats(self, rollouts: NestedArrayDict) -> dict[str, float]:
        return {**super()._get_log_stats(rollouts), "num_episodes": float(rollouts.batch_size[0])}


@pytest.mark.covers("002-M9")
def test_sampling_and_statistics_can_be_overridden_and_tests_follow(tmp_path: Path) -> None:
    Quiet(tiny_ei()).fit(root=str(tmp_path), name="run")
    for name, number in (("train", 8), ("test", 5), ("final_test", 5)):
        found = metrics(tmp_path / "run", f"{name}/verifier/reward")
        assert found
        assert all(value >= 100.0 for value in found)
        assert {*metrics(tmp_path / "run", f"{name}/num_episodes")} == {number}


def test_a_model_that_the_provider_lacks_is_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    with pytest.raises(LudusError, match=r"has no model 'tiney'. Did you mean 'tiny'\?"):
        trained(tiny_ei(**{"agents.verifier.model": "tiney"}), tmp_path)
    assert not (tmp_path / "run/server/asked.jsonl").exists()
    assert rows(tmp_path / "run", "metrics.jsonl") == []


def test_a_protocol_that_rewards_symbols_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rewards messages that are symbols, and text is none"):
        tiny_ei(**of_protocol("zero_knowledge", tmp_path))


@pytest.mark.parametrize("protocol", [one for one in SPOKEN if one != "zero_knowledge"])
def test_agents_of_every_protocol_can_be_trained(protocol: str, tmp_path: Path) -> None:
    """Also where a verifier decides only some episodes, and where nothing ships with prompts."""
    result = trained(tiny_ei(**of_protocol(protocol, tmp_path)), tmp_path)
    assert result.status == "finished"
    assert metrics(tmp_path / "run", "final_test/rounds")


def of_protocol(kind: str, folder: Path) -> dict[str, Any]:
    """Return the changes for questions from a file under a protocol, with prompts for its agents."""
    handler = find("protocol", kind)(
        validate(find("protocol", kind).Config, section(kind), source="test")
    )
    lines = [{"question": f"is it {n}?", "label": n % 2} for n in range(8)]
    path, prompts = folder / "questions.jsonl", folder / "prompts.yaml"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    words = {"accept": "accept", "reject": "reject"}
    prompts.write_text(
        yaml.safe_dump(
            {name: {**PROMPT, "question": "${question}", **words} for name in handler.agent_names}
        )
    )
    agent = ludus.example("pure_text_ei").agents["prover"].model_dump()
    scenario = {"kind": "file", "path": str(path), "test_path": None, "test_share": 0.5}
    return {
        "scenario": scenario,
        "protocol": section(kind),
        "prompts": str(prompts),
        "agents": dict.fromkeys(handler.agent_names, agent),
    }
