"""A resumed run may change its rate, schedule, target and length; each change is recorded, and exact."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.config.changeable import changeable_key, changeable_keys
from ludus.core.errors import LudusError, RunError
from ludus.core.run import Run
from ludus.testing.differences import ending_of
from ludus.testing.trainers import Killed, Watched, count_boundaries, listen, run_trainer
from tests.command_line import Ludus
from tests.start.sources import FAMILIES, named_weights, small_run

COSINE = {"kind": "cosine", "warmup_steps": 0, "final": 0.0, "total_steps": None}


def rates_of(kind: str) -> dict[str, Any]:
    """Return another learning rate and schedule for a kind."""
    within = "host." if kind == "fused_dqn" else ""
    return {f"{within}optimizer.learning_rate": 0.003, f"{within}learning_rate_schedule": COSINE}


def resumed(kind: str, root: Path, name: str, *, kill_at: int | None = None, **changed: Any) -> Any:
    return run_trainer(
        lambda: ludus.build_trainer(small_run(kind, **changed)), root, name, kill_at=kill_at
    )


def told(run: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "config_changed"]


@pytest.mark.parametrize("kind", ["supervised", "ppo", "fused_dqn", "solo_agent"])
def test_a_run_changed_and_killed_again_ends_as_one_changed_alone(
    kind: str, tmp_path: Path
) -> None:
    """Whether it is killed before its next checkpoint, or after it."""
    changed = rates_of(kind)
    kills: dict[str, tuple[int, ...]] = {"once": (), "before": (12,), "after": (16,)}
    for name, instants in kills.items():
        resumed(kind, tmp_path, name, kill_at=11)
        for instant in instants:
            resumed(kind, tmp_path, name, kill_at=instant, **changed)
        resumed(kind, tmp_path, name, **changed)
    resumed(kind, tmp_path, "unchanged")
    endings = {name: ending_of(tmp_path / name) for name in [*kills, "unchanged"]}
    assert endings["once"] == endings["before"] == endings["after"]
    assert endings["once"] != endings["unchanged"]
    for name in kills:
        lines = told(tmp_path / name)
        assert sorted(line["key"] for line in lines) == sorted(changed)
        history = json.loads((tmp_path / name / "run.json").read_text())["changes"]
        assert [one["key"] for one in history] == [line["key"] for line in lines]


def test_each_change_is_an_event_with_both_values_and_the_counters(tmp_path: Path) -> None:
    resumed("supervised", tmp_path, "a", kill_at=11)
    changed = {"optimizer.learning_rate": 0.003, "evaluation.target": 0.001, "max_epochs": 3}
    resumed("supervised", tmp_path, "a", **changed)
    lines = {line["key"]: line for line in told(tmp_path / "a")}
    assert {key: (one["old"], one["new"]) for key, one in lines.items()} == {
        "max_epochs": (2, 3), "optimizer.learning_rate": (0.002, 0.003), "evaluation.target": (None, 0.001),
    }  # fmt: skip
    one = lines["optimizer.learning_rate"]
    assert one["boundary"] == 10
    assert one["counters"]["opt_steps"] > 0
    assert one["reason"] == "optimizer.learning_rate is 0.003, which was 0.002"
    assert "learning_rate: 0.003" in (tmp_path / "a" / "config.yaml").read_text()


def test_a_change_that_no_checkpoint_has_is_forgotten_when_it_is_not_made_again(
    tmp_path: Path,
) -> None:
    resumed("supervised", tmp_path, "a", kill_at=11)
    resumed("supervised", tmp_path, "a", kill_at=12, **{"optimizer.learning_rate": 0.003})
    resumed("supervised", tmp_path, "a", max_epochs=3)
    history = json.loads((tmp_path / "a" / "run.json").read_text())["changes"]
    assert [(one["key"], one["new"]) for one in history] == [("max_epochs", 3)]


def test_the_command_changes_it_and_says_so(tmp_path: Path, call: Ludus) -> None:
    trainer = ludus.build_trainer(
        small_run("supervised", **{"settings.checkpoint.every_stages": 5})
    )

    def kill(run: Run) -> None:
        if run.boundaries == 11:
            raise Killed

    with pytest.raises(Killed):
        trainer.fit(
            root=str(tmp_path), name="a", runtime=partial(Watched, watch=[kill], leave_out=None)
        )
    place = str(tmp_path / "a")
    out = call("resume", place, "optimizer.learning_rate=0.003", "settings.display=plain").out
    assert "config changed: optimizer.learning_rate is 0.003, which was 0.002" in out
    assert "its optimizer.learning_rate was changed at boundary 10" in out
    again = call("resume", place, "optimizer.learning_rate=0.004").refusal()
    assert "has ended, so another optimizer.learning_rate would change nothing; raise its" in again


def test_other_keys_stay_refused_with_those_that_may_change(tmp_path: Path) -> None:
    resumed("supervised", tmp_path, "a", kill_at=11)
    may = (
        "the length of a run, max_grad_norm, optimizer.learning_rate, optimizer.weight_decay,"
        " learning_rate_schedule, evaluation.target and"
    )
    with pytest.raises(
        RunError, match=f"batch_size 16 .now 8.; only {may} its settings may change"
    ):
        resumed("supervised", tmp_path, "a", batch_size=8)
    with pytest.raises(RunError, match=r"optimizer.beta1 0.9 .now 0.8.; only"):
        resumed("supervised", tmp_path, "a", **{"optimizer.beta1": 0.8})


def test_a_kill_between_the_events_and_the_note_repeats_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = rates_of("supervised")
    resumed("supervised", tmp_path, "a", kill_at=11)

    def killed(*given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("ludus.store.note.write_note", killed)
        assert resumed("supervised", tmp_path, "a", **changed) is None
    assert "changes" not in json.loads((tmp_path / "a/run.json").read_text())
    resumed("supervised", tmp_path, "a", **changed)
    keys = [line["key"] for line in told(tmp_path / "a")]
    history = json.loads((tmp_path / "a/run.json").read_text())["changes"]
    assert keys == [one["key"] for one in history]
    assert sorted(keys) == sorted(changed)


def test_a_value_that_was_edited_by_hand_is_no_declared_change(tmp_path: Path) -> None:
    resumed("supervised", tmp_path, "a", kill_at=11)
    path = tmp_path / "a" / "config.yaml"
    path.write_text(path.read_text().replace("learning_rate: 0.002", "learning_rate: 0.003"))
    with pytest.raises(LudusError, match="put the old values back"):
        resumed("supervised", tmp_path, "a", **{"optimizer.learning_rate": 0.003})
    resumed("supervised", tmp_path, "a")
    assert not told(tmp_path / "a")


REACHED = {
    "supervised": 100.0, "dqn": -1e6, "ppo": -1e6, "fused_ppo": -1e6, "vanilla_ppo": -1e6, "solo_agent": -1e6,
}  # fmt: skip


@pytest.mark.parametrize("kind", REACHED)
def test_a_run_that_reached_its_target_goes_on_for_another_as_if_it_never_had_one(
    kind: str, tmp_path: Path
) -> None:
    """Once with nothing in between, and once killed on its way."""
    longer = {"max_env_steps": 96} if kind == "ppo" else {}
    easy = {"evaluation.target": REACHED[kind], **longer}
    free = {"evaluation.target": None, **longer}
    ends = {}
    for name, instants in {"once": (), "killed": (1, 2)}.items():
        first = resumed(kind, tmp_path, name, **easy)
        assert (first.status, "the target being" in first.reason) == ("stopped", True)
        begun = count_boundaries(tmp_path / name)
        for instant in instants:
            assert resumed(kind, tmp_path, name, kill_at=begun + instant, **free) is None
        last = resumed(kind, tmp_path, name, **free)
        assert (last.status, last.reason) == ("finished", None)
        assert [line["key"] for line in told(tmp_path / name)] == ["evaluation.target"]
        ends[name] = ending_of(tmp_path / name)
    assert ends["once"] == ends["killed"]
    unstopped = ludus.build_trainer(small_run(kind, **free))
    assert unstopped.fit(root=str(tmp_path), name="unstopped").counters == last.counters
    again = ludus.build_trainer(small_run(kind, **free))
    listen(again)
    again.fit(root=str(tmp_path), name="once", resume=True)
    weights, expected = named_weights(again), named_weights(unstopped)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_run_that_reached_its_target_does_not_go_on_for_a_greater_length_alone(
    tmp_path: Path,
) -> None:
    resumed("supervised", tmp_path, "a", **{"evaluation.target": 100.0})
    with pytest.raises(
        RunError, match=r"change evaluation.target as well, or start a new run from"
    ):
        resumed("supervised", tmp_path, "a", **{"evaluation.target": 100.0, "max_epochs": 4})
    resumed("supervised", tmp_path, "b", **{"evaluation.patience": 1, "evaluation.min_delta": 1e6})
    with pytest.raises(
        RunError, match=r"has not improved.*does not make it go on: start a new run"
    ):
        resumed("supervised", tmp_path, "b", **{"evaluation.patience": 1, "evaluation.min_delta": 1e6,
                                                "max_epochs": 9})  # fmt: skip


def test_a_plateau_starts_over_from_another_learning_rate(tmp_path: Path) -> None:
    plateau = {
        "kind": "plateau", "warmup_steps": 0, "metric": "train/epoch_loss", "mode": None, "factor": 0.1,
        "patience": 1, "min_delta": 100.0, "cooldown": 0, "minimum": 0.0,
    }  # fmt: skip
    section = {"learning_rate_schedule": plateau, "max_epochs": 4}
    resumed("supervised", tmp_path, "a", kill_at=21, **section)
    lower = {**section, "optimizer.learning_rate": 1e-4}
    resumed("supervised", tmp_path, "a", **lower)
    metrics = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    rates = [line.get("train/learning_rate") for line in map(json.loads, metrics)]
    assert 1e-4 in rates
    resumed("supervised", tmp_path, "b", kill_at=21, **section)
    resumed("supervised", tmp_path, "b", max_epochs=4, learning_rate_schedule=COSINE)


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_sections_declare_what_may_change(kind: str) -> None:
    config = small_run(kind)
    keys = [*changeable_keys(config)]
    assert {key.split(".")[-1] for key in keys} >= {"learning_rate", "learning_rate_schedule"}
    assert [key for key in keys if key == "evaluation.target"] == (
        [] if kind == "fused_dqn" else ["evaluation.target"]
    )
    assert changeable_key(config, "seed") is None
    assert changeable_key(config, f"{keys[0]}.kind") == keys[0]
