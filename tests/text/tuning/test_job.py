"""A fine-tuning job runs in a directory, is paused, killed and cancelled there, and ends the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.core.errors import ConfigError, LudusError
from ludus.text.models.language_model import load_model
from ludus.text.models.new_model import NewModelConfig, make_model
from ludus.text.tuning.job import TuningProgress, Wish, check_files, export_model, run_job
from ludus.text.tuning.job_config import TuningJob, config_of, resolve
from ludus.text.tuning.majority import majority_lines
from tests.text.tuning.small import NEW_MODEL, chat, write_lines


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, and files of lines of both methods."""
    folder = tmp_path_factory.mktemp("jobs")
    make_model(NewModelConfig(**NEW_MODEL), folder / "tiny")
    for method in ("supervised", "dpo"):
        (folder / f"{method}.jsonl").write_bytes(majority_lines(0, 40, method=method, seed=0))  # type: ignore[arg-type]
    return folder


def job_of(base: Path, method: Any = "supervised", **changed: Any) -> TuningJob:
    job = TuningJob(base / "tiny", base / f"{method}.jsonl", method, 0, n_epochs=2, batch_size=16)
    return dataclasses.replace(job, **changed)


def weights(directory: Path | None) -> bytes:
    assert directory is not None
    return (directory / "model.safetensors").read_bytes()


@pytest.mark.parametrize("method", ["supervised", "dpo"])
def test_a_job_ends_with_a_model_that_loads_and_counts_its_tokens(
    method: str, base: Path, tmp_path: Path
) -> None:
    seen: list[TuningProgress] = []
    job = job_of(base, method)
    outcome = run_job(job, tmp_path / "job", on_progress=seen.append)
    assert outcome.status == "succeeded"
    assert outcome.trained_tokens == 2 * 40 * 22 * (2 if method == "dpo" else 1)
    assert outcome.directory is not None
    tuned, start = (load_model(one, name="x") for one in (outcome.directory, job.model))
    assert not torch.equal(tuned.module.output_weight, start.module.output_weight)  # type: ignore[arg-type]
    steps = [one for one in seen if "train_loss" in one.metrics]
    assert [one.step for one in steps] == [1, 2, 3, 4, 5, 6]
    assert all(one.num_steps == 6 for one in seen)
    assert steps[0].trained_tokens == outcome.trained_tokens * 16 // 80
    assert 0 <= steps[0].metrics["train_mean_token_accuracy"] <= 1
    assert seen[-1].epoch == 2


def test_a_validation_file_is_measured_after_each_epoch(base: Path, tmp_path: Path) -> None:
    seen: list[TuningProgress] = []
    job = job_of(base, validation_file=base / "supervised.jsonl")
    run_job(job, tmp_path / "job", on_progress=seen.append)
    found = [one.metrics["full_valid_loss"] for one in seen if "full_valid_loss" in one.metrics]
    assert len(found) == 2
    assert found[1] < found[0]
    assert any("full_valid_mean_token_accuracy" in one.metrics for one in seen)


def after(count: int, wish: Wish) -> Callable[[], Wish]:
    """Return a wish that becomes another at a boundary."""
    asked = [0]

    def answer() -> Wish:
        asked[0] += 1
        return wish if asked[0] > count else "go_on"

    return answer


@pytest.mark.parametrize("method", ["supervised", "dpo"])
def test_a_paused_job_goes_on_and_ends_with_the_same_bytes(
    method: str, base: Path, tmp_path: Path
) -> None:
    whole = run_job(job_of(base, method), tmp_path / "whole")
    paused = run_job(job_of(base, method), tmp_path / "job", wish=after(4, "pause"))
    assert (paused.status, paused.directory) == ("paused", None)
    assert 0 < paused.trained_tokens < whole.trained_tokens
    outcome = run_job(job_of(base, method), tmp_path / "job")
    assert outcome.trained_tokens == whole.trained_tokens
    assert weights(outcome.directory) == weights(whole.directory)


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("step", [1, 4, 6])
def test_a_killed_job_that_is_run_again_ends_with_the_same_bytes(
    step: int, base: Path, tmp_path: Path
) -> None:
    def kill(progress: TuningProgress) -> None:
        if progress.step == step:
            raise Killed

    whole = run_job(job_of(base), tmp_path / "whole")
    with pytest.raises(Killed):
        run_job(job_of(base), tmp_path / "job", on_progress=kill)
    outcome = run_job(job_of(base), tmp_path / "job")
    assert weights(outcome.directory) == weights(whole.directory)
    assert outcome.trained_tokens == whole.trained_tokens


def test_a_finished_job_that_is_run_again_does_nothing_more(base: Path, tmp_path: Path) -> None:
    first = run_job(job_of(base), tmp_path / "job")
    seen: list[TuningProgress] = []
    assert run_job(job_of(base), tmp_path / "job", on_progress=seen.append) == first
    assert seen == []


def test_a_cancelled_job_makes_no_model(base: Path, tmp_path: Path) -> None:
    outcome = run_job(job_of(base), tmp_path / "job", wish=after(3, "cancel"))
    assert (outcome.status, outcome.directory) == ("cancelled", None)
    assert not (tmp_path / "job/tuned").exists()
    unbegun = run_job(job_of(base), tmp_path / "other", wish=lambda: "cancel")
    assert unbegun.trained_tokens == 0
    assert not (tmp_path / "other").exists()


def test_another_seed_tunes_another_model(base: Path, tmp_path: Path) -> None:
    one, other = (
        run_job(job_of(base, seed=seed), tmp_path / str(seed)).directory for seed in (0, 1)
    )
    assert weights(one) != weights(other)


def test_auto_is_resolved_by_the_model_and_the_file(base: Path, tmp_path: Path) -> None:
    auto = {"n_epochs": "auto", "batch_size": "auto"}
    found = resolve(job_of(base, **auto))
    assert (found.n_epochs, found.batch_size, found.beta) == (3, 40, None)
    assert found.learning_rate == 1e-3
    many = write_lines(tmp_path / "many.jsonl", [chat("a", "b")] * 100)
    assert resolve(job_of(base, training_file=many, **auto)).batch_size == 64
    preferences = resolve(job_of(base, "dpo", learning_rate_multiplier=2.0))
    assert (preferences.beta, preferences.learning_rate) == (0.5, pytest.approx(6e-4))
    config = config_of(job_of(base, "dpo", beta=0.2, nll_coef=0.3, learning_rate_multiplier=0.5))
    assert config.method.model_dump() == {"kind": "dpo", "beta": 0.2, "nll_coef": 0.3}
    assert config.optimizer.learning_rate == pytest.approx(1.5e-4)


@pytest.mark.parametrize(
    ("name", "value"), [("n_epochs", 0), ("batch_size", -1), ("learning_rate_multiplier", 0.0)]
)
def test_a_hyperparameter_that_means_nothing_is_refused(
    name: str, value: float, base: Path
) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        resolve(job_of(base, **{name: value}))


def test_a_bad_file_is_refused_before_any_work(base: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bad.jsonl", [chat("a", "b"), chat("a" * 80, "b")])
    job = job_of(base, training_file=path)
    with pytest.raises(ConfigError, match="line 2 is 86 tokens"):
        run_job(job, tmp_path / "job")
    assert not (tmp_path / "job").exists()
    with pytest.raises(ConfigError, match=r"train\.jsonl: line 2 is 86 tokens"):
        check_files(job, load_model(job.model, name="x"), names={path: "train.jsonl"})
    with pytest.raises(
        ConfigError, match=r"the training file is .*none\.jsonl, which cannot be read"
    ):
        run_job(job_of(base, training_file=tmp_path / "none.jsonl"), tmp_path / "job")


def test_a_good_file_is_counted(base: Path) -> None:
    job = job_of(base, validation_file=base / "supervised.jsonl")
    assert check_files(job, load_model(job.model, name="x")) == 40 * 22


def test_the_model_of_an_epoch_is_exported(base: Path, tmp_path: Path) -> None:
    outcome = run_job(job_of(base, keep_every_epochs=1), tmp_path / "job")
    for epoch in (1, 2):
        export_model(tmp_path / "job", f"epoch_{epoch}", tmp_path / f"epoch_{epoch}")
    assert (
        weights(tmp_path / "epoch_2") == weights(outcome.directory) != weights(tmp_path / "epoch_1")
    )


def test_a_tuned_model_that_is_gone_is_told(base: Path, tmp_path: Path) -> None:
    outcome = run_job(job_of(base), tmp_path / "job")
    assert outcome.directory is not None
    outcome.directory.rename(tmp_path / "elsewhere")
    with pytest.raises(LudusError, match="is missing"):
        run_job(job_of(base), tmp_path / "job")
