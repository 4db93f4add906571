"""Groups of agents that share a model: one job for all of them, and all groups switch together or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import ConfigError, LudusError
from ludus.testing.trainers import Killed
from ludus.text.groups import PureTextSharedModelGroup
from ludus.text.trainers.pure_text_ei import PureTextEiTrainer
from tests.text.trainers.faulty_tables import ERROR, faulty, jobs, tables
from tests.text.trainers.runs import (
    events,
    kept,
    metrics,
    models_of,
    outcome,
    resume,
    rows,
    tiny_ei,
    train,
    trained,
)

PAIR = {"agents.verifier.group": "pair", "agents.prover.group": "pair"}
ALWAYS = {"expert_iteration.selection.reward_threshold": 0.0}
"""Every episode is imitated."""
SAVED = {"settings.checkpoint.every_stages": 1}


def lines_of(run_dir: Path) -> dict[str, dict[str, float]]:
    """Return how often each answer to a prompt was learned by the only tuned model."""
    (tuned,) = [table for name, table in tables(run_dir)["models"].items() if name != "tiny"]
    return dict(tuned)


@pytest.mark.covers("002-S8")
def test_agents_of_a_group_share_one_job_and_its_model(tmp_path: Path) -> None:
    run_dir = train(tmp_path, **PAIR, **ALWAYS)
    (job,) = jobs(run_dir).values()
    assert models_of(run_dir) == kept(run_dir) == {"pair": job["tuned"]}
    # It was tuned on what both were asked: the verifier reads the prover, who reads nobody.
    prompts = [*lines_of(run_dir)]
    assert any("said" in one or "\n" in one for one in prompts)
    assert sum(sum(row.values()) for row in lines_of(run_dir).values()) == 2 * 8


@pytest.mark.covers("002-S8")
def test_agents_without_a_group_have_a_model_and_a_job_of_their_own(tmp_path: Path) -> None:
    run_dir = train(tmp_path, **ALWAYS)
    assert sorted(one["group"] for one in jobs(run_dir).values()) == ["prover", "verifier"]
    assert len({*models_of(run_dir).values()}) == 2


@pytest.mark.covers("002-S8")
@pytest.mark.parametrize(("key", "value"), [("model", "other"), ("frozen", True)])
def test_a_group_whose_agents_disagree_is_refused_in_a_sentence(key: str, value: Any) -> None:
    told = rf"'agents.prover.{key}' is {value}, but verifier, of the same group 'pair', has"
    with pytest.raises(ConfigError, match=told):
        tiny_ei(**PAIR, **{f"agents.prover.{key}": value})


@pytest.mark.covers("002-S8")
def test_a_frozen_group_is_never_tuned(tmp_path: Path) -> None:
    run_dir = train(tmp_path, max_iterations=3, **ALWAYS, **{"agents.prover.frozen": True})
    assert {one["group"] for one in jobs(run_dir).values()} == {"verifier"}
    assert models_of(run_dir)["prover"] == "tiny"
    with pytest.raises(ConfigError, match="all are frozen, so nothing would be learned"):
        tiny_ei(**{"agents.prover.frozen": True, "agents.verifier.frozen": True})


def test_a_job_for_a_frozen_group_is_refused(tmp_path: Path) -> None:
    class Careless(PureTextEiTrainer):
        def _stage_create_fine_tune_jobs(self, rollouts: Any) -> None:
            for group in self.groups.values():
                group.create_supervised_fine_tune_job([])

    with pytest.raises(LudusError, match="'prover' is frozen, so no job may tune it; leave it out"):
        Careless(tiny_ei(**{"agents.prover.frozen": True})).fit(root=str(tmp_path))


@pytest.mark.covers("002-S8")
@pytest.mark.parametrize("is_from_scratch", [False, True])
def test_the_model_that_is_tuned_is_the_newest_or_the_first(
    is_from_scratch: bool, tmp_path: Path
) -> None:
    changes = {"text_rl.fine_tune_from_scratch": is_from_scratch}
    run_dir = train(tmp_path, max_iterations=3, **ALWAYS, **PAIR, **changes)
    first, second = jobs(run_dir).values()
    assert first["model"] == "tiny"
    assert second["model"] == ("tiny" if is_from_scratch else first["tuned"])
    assert models_of(run_dir) == {"pair": second["tuned"]}


@pytest.mark.covers("002-D2", "002-S8")
@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_one_job_that_does_not_succeed_is_shown_whole_and_no_group_switches(
    ending: str, tmp_path: Path
) -> None:
    config = tiny_ei(**ALWAYS, **SAVED, provider=faulty(endings={"prover": ending}))
    with pytest.raises(LudusError) as caught:
        trained(config, tmp_path)
    told = str(caught.value)
    (job_id,) = [name for name, one in jobs(tmp_path / "run").items() if one["group"] == "prover"]
    what = f"failed: {ERROR}" if ending == "failed" else "was cancelled"
    assert f"the fine-tuning job {job_id} of the group 'prover' {what}" in told
    assert "'verifier'" not in told
    assert "a resume creates a new job in the place of each" in told
    assert len(jobs(tmp_path / "run")) == 2
    assert models_of(tmp_path / "run") == {"prover": "tiny", "verifier": "tiny"}


@pytest.mark.covers("002-D2")
def test_all_jobs_that_did_not_succeed_are_named_in_one_error(tmp_path: Path) -> None:
    endings = {"prover": "failed", "verifier": "cancelled"}
    with pytest.raises(LudusError, match=r"'verifier' was cancelled; .* 'prover' failed: the loss"):
        trained(tiny_ei(**ALWAYS, provider=faulty(endings=endings)), tmp_path)


@pytest.mark.covers("002-D2")
@pytest.mark.parametrize("saved", [SAVED, {}])
def test_a_resume_after_a_failed_job_creates_that_one_again_and_ends_as_if_it_had_succeeded(
    saved: Any, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    whole = train(tmp_path / "whole", **ALWAYS)
    failing = faulty(endings={"prover": "failed"})
    with pytest.raises(LudusError, match="failed"):
        trained(tiny_ei(**ALWAYS, **saved, provider=failing), tmp_path)
    # It fails once more, and then the provider is well again.
    with pytest.raises(LudusError, match="failed"):
        resume(run_dir)
    assert [one["group"] for one in jobs(run_dir).values()].count("prover") == 2
    assert resume(run_dir, "provider.endings={}").status == "finished"
    found = [one["group"] for one in jobs(run_dir).values()]
    assert sorted(found) == ["prover"] * 3 + ["verifier"]
    assert metrics(run_dir, "test/accuracy") == metrics(whole, "test/accuracy")
    tuned = [tables(one)["models"][models_of(one)["prover"]] for one in (run_dir, whole)]
    assert tuned[0] == tuned[1]


@pytest.mark.covers("002-D2")
def test_a_job_of_the_pretraining_that_failed_is_created_again_too(tmp_path: Path) -> None:
    pretraining = {"num_episodes": 4, "num_epochs": 1, "batch_size": 8}
    config = tiny_ei(
        pretraining={**pretraining, "learning_rate_multiplier": 1.0},
        provider=faulty(endings={"prover": "failed"}),
        max_iterations=1,
        **SAVED,
    )
    with pytest.raises(LudusError, match="failed"):
        trained(config, tmp_path)
    assert resume(tmp_path / "run", "provider.endings={}").status == "finished"
    found = [one["group"] for one in jobs(tmp_path / "run").values()]
    assert sorted(found) == ["prover", "prover", "verifier"]
    assert "tiny" not in models_of(tmp_path / "run").values()


@pytest.mark.covers("002-D3")
@pytest.mark.parametrize("number", [1, 2])
def test_a_crash_between_the_jobs_of_two_groups_creates_none_a_second_time(
    number: int, tmp_path: Path
) -> None:
    whole = train(tmp_path / "whole", **ALWAYS)
    with pytest.raises(Killed):
        trained(tiny_ei(**ALWAYS, provider=faulty(stop_at_job=number)), tmp_path)
    assert len(jobs(tmp_path / "run")) == number
    # The provider refuses a job that it has already.
    resume(tmp_path / "run", "provider.stop_at_job=null")
    assert len(jobs(tmp_path / "run")) == 2
    assert outcome(tmp_path / "run") == outcome(whole)


def test_a_name_of_any_length_makes_a_suffix_that_a_provider_takes(tmp_path: Path) -> None:
    group = PureTextSharedModelGroup(
        "prüfer",
        ["prüfer"],
        model="tiny",
        is_frozen=False,
        is_from_scratch=False,
        hyperparameters={},
        seed=0,
        run_name="x" * 90,
    )
    group.create_supervised_fine_tune_job([])
    assert group.spec is not None
    assert len(group.spec.suffix) <= 64
    assert group.spec.suffix.endswith("x-0-pr-fer")


def test_what_jobs_cost_stands_in_the_log_of_the_clock_alone(tmp_path: Path) -> None:
    run_dir = train(tmp_path, **ALWAYS)
    names = {name for row in rows(run_dir, "timing.jsonl") for name in row}
    assert any(name.endswith("/training_tokens") for name in names)
    assert "spent" not in (run_dir / "metrics.jsonl").read_text()


def test_a_group_without_examples_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    run_dir = train(tmp_path, **{"expert_iteration.selection.reward_threshold": 1e9})
    assert jobs(run_dir) == {}
    assert len(events(run_dir, "empty_selection")) == 2
    assert {*models_of(run_dir).values()} == {"tiny"}
