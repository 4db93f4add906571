"""PPO under a price on the KL divergence that adapts, and under a limit that ends its passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.config.migrations import migrate
from ludus.core.errors import CheckpointError, ConfigError
from ludus.rl.rollouts.kl_watch import KlWatch
from tests.rl.small import BY_KL, small

CPU = torch.device("cpu")
BUSY = {"num_epochs": 4, "optimizer.learning_rate": 0.02}


def records(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def fitted(root: Path, name: str = "run", **changes: Any) -> tuple[Any, Any]:
    trainer: Any = ludus.build_trainer(small("ppo", **changes))
    return trainer, trainer.fit(root=str(root), name=name)


# Config


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "kl without kl": ({"policy_loss": "kl", "clip": None}, "the section 'kl' is null; fill it in"),
    "clip without clip": ({"clip": None}, "the section 'clip' is null; fill it in"),
    "kl and clip": (
        {"policy_loss": "kl", "kl": BY_KL["kl"]},
        "'policy_loss' is kl, so nothing reads the section 'clip'; set it to null, or set"
        " policy_loss: clip",
    ),
    "clip and kl": (
        {"kl": BY_KL["kl"]},
        "'policy_loss' is clip, so nothing reads the section 'kl'; set it to null",
    ),
}


@pytest.mark.parametrize(("changes", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_the_section_of_the_other_loss_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        small("ppo", **changes)
    assert told in str(refusal.value)


def of_version_1(**changes: Any) -> dict[str, Any]:
    data = small("ppo").model_dump()
    for key in ("kl", "target_kl"):
        del data[key]
    data["clip"]["schedule"] = {"kind": "constant", "warmup_steps": 0}
    return {**data, "version": 1, **changes}


def test_an_older_price_under_the_name_of_the_clip_becomes_a_fixed_beta() -> None:
    data, _ = migrate(of_version_1(policy_loss="kl"), source="old.yaml")
    assert (data["clip"], data["kl"]) == (None, {"beta": 0.2, "target": None})
    assert data["target_kl"] is None


def test_an_older_clip_stays_one() -> None:
    data, _ = migrate(of_version_1(), source="old.yaml")
    assert data["clip"]["initial"] == 0.2
    assert (data["kl"], data["target_kl"]) == (None, None)


def test_an_older_price_that_changed_with_the_steps_is_told() -> None:
    clip = small("ppo").clip.model_dump()
    with pytest.raises(
        ConfigError, match=r"'clip.schedule' changes the price .* make the schedule"
    ):
        migrate(of_version_1(policy_loss="kl", clip=clip), source="old.yaml")


# Beta


def watch(**changes: Any) -> KlWatch:
    config = small("ppo", **{**BY_KL, **changes})
    return KlWatch(
        config.kl, minibatches=config.num_minibatches, target_kl=config.target_kl, device=CPU
    )


@pytest.mark.parametrize(("last_pass", "beta"), [(0.016, 1.0), (0.012, 0.5), (0.006, 0.25)])
def test_beta_follows_the_mean_of_the_last_pass(last_pass: float, beta: float) -> None:
    """It doubles above 1.5 times the target of 0.01, and halves below the target over 1.5."""
    own = watch()
    for kl in (9.0, 9.0, 9.0, last_pass - 0.003, last_pass, last_pass + 0.003):
        own.note(torch.tensor(kl))
    assert own.beta == 0.5
    own.begin_rollout()
    assert own.beta == pytest.approx(beta)
    own.begin_rollout()
    assert own.beta == pytest.approx(beta)
    assert own.num_passes == 2


@pytest.mark.parametrize(("target", "beta"), [(1e-9, 0.5 * 2**5), (1e3, 0.5 / 2**5), (None, 0.5)])
def test_beta_adapts_after_each_rollout_but_the_last(
    tmp_path: Path, target: float | None, beta: float
) -> None:
    kl = {"beta": 0.5, "target": target}
    trainer, result = fitted(tmp_path, **{**BY_KL, **BUSY, "kl": kl})
    assert result.counters["epoch"] == 6
    assert trainer.agent.watch.beta == pytest.approx(beta)
    logged = [r["train/kl_beta"] for r in records(tmp_path / "run") if "train/kl_beta" in r]
    assert logged[0] == 0.5
    assert logged[-1] == pytest.approx(beta)


# The limit


def test_the_passes_end_once_the_policy_has_moved_too_far(tmp_path: Path) -> None:
    """The first update finds the policy where it was, the second finds it moved."""
    trainer, result = fitted(tmp_path, target_kl=1e-6, minibatches=1, **BUSY)
    assert result.counters["opt_steps"] == 2 * 6
    assert trainer.agent.watch.num_passes == 2 * 6


def test_a_limit_that_is_never_reached_changes_nothing(tmp_path: Path) -> None:
    free, _ = fitted(tmp_path, "free", **BUSY)
    bound, _ = fitted(tmp_path, "bound", target_kl=1e6, **BUSY)
    for name, tensor in free.agent.weights().items():
        assert tensor.equal(bound.agent.weights()[name])


def test_the_limit_is_one_and_a_half_times_the_target() -> None:
    own = watch(target_kl=0.02)
    for kl, is_far in [(0.029, False), (0.031, True), (0.01, False)]:
        own.note(torch.tensor(kl))
        assert own.is_far is is_far
    own.note(torch.tensor(9.0))
    own.begin_rollout()
    assert not own.is_far


def test_passes_are_counted_as_updates_and_the_begun_one_too(tmp_path: Path) -> None:
    """As Stable-Baselines3 counts n_updates for PPO; optimisation steps have their own column."""
    fitted(tmp_path, num_epochs=2, minibatches=3)
    found = [r for r in records(tmp_path / "run") if "train/n_updates" in r]
    assert [r["train/n_updates"] for r in found] == [2, 4, 6, 8, 10, 12]
    assert [r["opt_steps"] for r in found] == [6, 12, 18, 24, 30, 36]


def test_an_off_policy_agent_counts_optimisation_steps(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(small("dqn"))
    trainer.fit(root=str(tmp_path), name="run")
    for record in records(tmp_path / "run"):
        if "train/n_updates" in record:
            assert record["train/n_updates"] == record["opt_steps"]


@pytest.mark.parametrize("changes", [{"target_kl": 2e-4}, {**BY_KL, "target_kl": 1e-3}])
def test_a_run_stopped_between_updates_ends_as_if_never_stopped(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = small("ppo", **{**BUSY, **changes})

    class Stop:
        def __init__(self, trainer: Any, at: int) -> None:
            self.trainer, self.at = trainer, at

        def after_train_step(self) -> None:
            run = self.trainer.run
            run.interrupted = run.counters["opt_steps"] == self.at

    def fit(name: str, at: int, *, resume: bool = False) -> tuple[Any, Any]:
        trainer: Any = ludus.build_trainer(config)
        trainer.add(Stop(trainer, at))
        return trainer, trainer.fit(root=str(tmp_path), name=name, resume=resume)

    straight, ended = fit("straight", -1)
    whole = config.num_epochs * config.num_minibatches * ended.counters["epoch"]
    assert 6 < ended.counters["opt_steps"] < whole
    for at in (2, 3, 7):
        assert fit("stopped", at, resume=at > 2)[1].status == "interrupted"
    resumed, result = fit("stopped", -1, resume=True)
    assert (result.status, result.exact) == ("finished", "expected")
    assert result.counters == ended.counters
    assert resumed.agent.watch.state_dict() == straight.agent.watch.state_dict()
    for name, tensor in straight.agent.weights().items():
        assert tensor.equal(resumed.agent.weights()[name])
    written = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("stopped", "straight")]
    assert written[0] == written[1]


def test_a_state_without_a_watch_is_taken_up(tmp_path: Path) -> None:
    trainer, _ = fitted(tmp_path)
    state = {k: v for k, v in trainer.agent.state_dict().items() if k != "watch"}
    trainer.agent.watch.num_passes = 0
    trainer.agent.load_state_dict(state)
    assert trainer.agent.watch.num_passes == 12


def test_a_watch_does_not_take_in_negative_counts() -> None:
    own = watch()
    with pytest.raises(CheckpointError, match="'num_passes' is -1; it must be 0 or more"):
        own.load_state_dict({**own.state_dict(), "num_passes": -1})
