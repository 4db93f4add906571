"""What decides the learning rate: schedules by torch's numbers, a metric, a function, a hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch.optim import lr_scheduler

import ludus
from ludus import Trainer, register
from ludus.core.errors import ConfigError, LudusError
from ludus.judge.scores import Score
from ludus.nn.schedules import Schedule, ScheduleConfig
from ludus.nn.schedules._table import OneCycleSchedule, WarmRestarts
from ludus.nn.schedules.plateau import Plateau, PlateauSchedule
from ludus.testing import trainers
from tests.supervised.conftest import Tiny, history, lines

PLATEAU: dict[str, Any] = {
    "kind": "plateau", "warmup_steps": 0, "metric": "validation/epoch_loss", "mode": None, "factor": 0.5,
    "patience": 1, "min_delta": 0.3, "cooldown": 1, "minimum": 1e-5,
}  # fmt: skip


def sgd(lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def by_torch(make: Any, lr: float, num_steps: int) -> list[float]:
    optimizer = sgd(lr)
    scheduler, found = make(optimizer), []
    for _ in range(num_steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("total", [7, 50, 101])
@pytest.mark.parametrize("shape", ["cosine", "linear"])
@pytest.mark.parametrize("three_phases", [False, True])
def test_one_cycle_gives_the_numbers_of_torch(total: int, shape: Any, three_phases: bool) -> None:
    def make(optimizer: Any) -> Any:
        return lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.4, total_steps=total, pct_start=0.3, three_phase=three_phases,
            anneal_strategy="cos" if shape == "cosine" else "linear", div_factor=8.0,
            final_div_factor=100.0, cycle_momentum=False,
        )  # fmt: skip

    config = OneCycleSchedule.Config(
        kind="one_cycle", peak=0.4, final=0.05 / 100, rising_share=0.3, shape=shape,
        three_phases=three_phases, total_steps=None,
    )  # fmt: skip
    schedule = Schedule(config, initial=0.05, run_steps=total)
    assert [schedule(t) for t in range(total)] == pytest.approx(by_torch(make, 0.05, total)[:total])


@pytest.mark.parametrize(("period", "factor"), [(5, 1), (3, 2), (1, 3)])
def test_warm_restarts_give_the_numbers_of_torch(period: int, factor: int) -> None:
    config = WarmRestarts.Config(
        kind="warm_restarts", warmup_steps=0, final=0.01, first_period=period, period_factor=factor
    )
    schedule = Schedule(config, initial=0.2, run_steps=60)
    expected = by_torch(
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, period, factor, eta_min=0.01), 0.2, 60
    )
    assert [schedule(t) for t in range(60)] == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("cooldown", [0, 2])
def test_plateau_gives_the_numbers_of_torch(mode: Any, cooldown: int) -> None:
    """Torch reduces after one more than its patience; ours is how many are no better."""
    optimizer = sgd(0.8)
    theirs = lr_scheduler.ReduceLROnPlateau(
        optimizer, mode, factor=0.5, patience=1, threshold=0.1, threshold_mode="abs",
        cooldown=cooldown, min_lr=0.04,
    )  # fmt: skip
    config = Plateau(
        kind="plateau", warmup_steps=0, metric="m", mode=mode, factor=0.5, patience=2, min_delta=0.1,
        cooldown=cooldown, minimum=0.04,
    )  # fmt: skip
    ours = PlateauSchedule(config, initial=0.8, num_steps=1)
    score, found, expected = Score("m", "m", mode, min_delta=0.1), [], []
    generator = torch.Generator().manual_seed(1)
    for value in (torch.rand(60, generator=generator) * 2).tolist():
        theirs.step(value)
        ours.update(score.is_progress(value, ours.peak), value)
        expected.append(optimizer.param_groups[0]["lr"])
        found.append(ours(0))
    assert found == pytest.approx(expected)
    assert len({*found}) > 3


def rates(config: Any, root: Path, **more: Any) -> list[float]:
    trainer = Trainer(config)
    for name, value in more.items():
        getattr(trainer, name)(value)
    return history(trainer.fit(root=str(root), name=str(len([*root.iterdir()]))).run_dir, RATE)


RATE = "train/learning_rate"


def test_a_run_on_a_plateau_reduces_its_learning_rate(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny(max_epochs=6, learning_rate_schedule=PLATEAU, **{"optimizer.learning_rate": 0.08})
    never = {"min_delta": 1e6, "patience": 1, "cooldown": 0}

    def found(**changed: Any) -> list[float]:
        section = {**PLATEAU, **never, **changed}
        return rates(config.replace(learning_rate_schedule=section), tmp_path)

    assert found() == pytest.approx([0.08, 0.08, 0.04, 0.02, 0.01, 0.005])
    assert found(factor=0.25)[2:4] == pytest.approx([0.02, 0.005])
    assert found(patience=2) == pytest.approx([0.08, 0.08, 0.08, 0.04, 0.04, 0.02])
    assert found(cooldown=1) == pytest.approx([0.08, 0.08, 0.04, 0.04, 0.02, 0.02])
    assert found(minimum=0.03) == pytest.approx([0.08, 0.08, 0.04, 0.03, 0.03, 0.03])
    assert found(min_delta=0.0)[2] == 0.08
    assert found(min_delta=0.0, mode="max")[2] == 0.04
    assert found(min_delta=0.0, metric="train/learning_rate", mode="min")[2] == 0.04
    assert found(warmup_steps=14)[0] < 0.08


def test_a_schedule_that_needs_a_supervised_run_is_refused_elsewhere() -> None:
    for kind, key in (
        ("dqn", "exploration.schedule"),
        ("ppo-pendulum", "learning_rate_schedule"),
        ("ppo-pendulum", "clip.schedule"),
        ("fused_ppo", "learning_rate_schedule"),
    ):
        for section in (PLATEAU, {"kind": "given"}):
            with pytest.raises(ConfigError, match="only the learning rate of a supervised or an"):
                ludus.example(kind).replace(**{key: section})


def test_a_plateau_of_a_metric_that_is_never_logged_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    section = {**PLATEAU, "metric": "validation/epoch_lost", "mode": "min"}
    with pytest.raises(ConfigError, match=r"learning_rate_schedule.metric' is .* never writes"):
        Trainer(tiny(learning_rate_schedule=section)).fit(root=str(tmp_path))
    with pytest.raises(ConfigError, match="cannot tell whether"):
        tiny(learning_rate_schedule={**PLATEAU, "metric": "abc"})


@register("schedule", "halved_in_tests")
class Halving:
    class Config(ScheduleConfig):
        kind: Literal["halved_in_tests"]
        """Halve the value again and again."""
        every: int
        """After so many steps."""

    def __init__(self, config: Config, *, initial: float, num_steps: int) -> None:
        self.config, self.initial = config, initial

    def __call__(self, step: int) -> float:
        return self.initial * 0.5 ** (step // self.config.every)


def test_a_registered_schedule_is_a_kind_like_any_other(tiny: Tiny, tmp_path: Path) -> None:
    section = {"kind": "halved_in_tests", "every": 7}
    found = rates(tiny(learning_rate_schedule=section, max_epochs=3), tmp_path)
    initial = tiny().optimizer.learning_rate
    assert found == pytest.approx([initial, initial / 2, initial / 4])
    assert ludus.example("dqn").replace(learning_rate_schedule=section)
    with pytest.raises(ConfigError, match=r"schedule.every' is missing"):
        tiny(learning_rate_schedule={"kind": "halved_in_tests"})


def test_a_function_of_the_step_scales_the_learning_rate(tiny: Tiny, tmp_path: Path) -> None:
    found = rates(tiny(max_epochs=3), tmp_path, set_schedule=lambda step: 1 / (1 + step // 7))
    initial = tiny().optimizer.learning_rate
    assert found == pytest.approx([initial, initial / 2, initial / 3])
    with pytest.raises(ConfigError, match="the script gave none; call"):
        rates(tiny(learning_rate_schedule={"kind": "given"}), tmp_path)
    with pytest.raises(ConfigError, match="set_schedule was given a float"):
        Trainer(tiny()).set_schedule(0.5)
    for wrong, words in ((-1.0, "gave -"), (float("nan"), "gave nan"), ("x", "returned a str")):
        with pytest.raises(LudusError, match=words):
            rates(tiny(), tmp_path, set_schedule=lambda step, wrong=wrong: wrong)


def test_a_resume_without_the_function_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Trainer(tiny(max_epochs=3))
    trainer.set_schedule(lambda step: 0.5)
    trainer.fit(max_steps=5, root=str(tmp_path), name="one")
    with pytest.raises(LudusError, match="schedule"):
        Trainer(tiny(max_epochs=3)).fit(max_steps=9, root=str(tmp_path), name="one", resume=True)


class SetsRates:
    """Sets a rate after the second epoch, and goes by the schedule again after the fourth."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = [trainer]

    def after_epoch(self, run: Any) -> None:
        rate = {1: 0.5, 3: None}.get(run.round("epoch"), self._trainer[0].rate_control.override)
        self._trainer[0].set_learning_rate(rate)


def test_a_hook_sets_the_learning_rate_until_it_gives_it_back(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Trainer(tiny(max_epochs=6))
    trainer.add(SetsRates(trainer))
    found = history(trainer.fit(root=str(tmp_path)).run_dir, RATE)
    initial = tiny().optimizer.learning_rate
    assert found == pytest.approx([initial, initial, 0.5, 0.5, initial, initial])


def test_a_learning_rate_that_is_none_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    trainer = Trainer(tiny())
    with pytest.raises(LudusError, match="is for hooks of a run"):
        trainer.set_learning_rate(0.1)
    trainer.fit(root=str(tmp_path))
    for wrong in (-0.1, float("nan"), 1e9, True, "x"):
        with pytest.raises(LudusError, match="a learning rate is a number from 0 to 1000"):
            trainer.set_learning_rate(wrong)  # type: ignore[arg-type]
    with pytest.raises(LudusError, match="could leave the range of"):
        trainer.set_learning_rate(7.0)


def saved(tiny: Tiny, **changes: Any) -> Any:
    return tiny(**{"settings.checkpoint.every_stages": 2, "engine": "eager", **changes})


def with_plateau(tiny: Tiny) -> Trainer:
    section = {**PLATEAU, "min_delta": 0.0, "patience": 2, "mode": "max", "cooldown": 1}
    return Trainer(saved(tiny, max_epochs=8, learning_rate_schedule=section))


def with_hook(tiny: Tiny) -> Trainer:
    trainer = Trainer(saved(tiny, max_epochs=6))
    trainer.add(SetsRates(trainer))
    return trainer


def with_function(tiny: Tiny) -> Trainer:
    trainer = Trainer(saved(tiny, max_epochs=3))
    trainer.set_schedule(lambda step: 1 / (1 + step))
    return trainer


@pytest.mark.parametrize("make", [with_plateau, with_hook, with_function])
def test_a_killed_run_goes_on_at_the_rate_it_had(make: Any, tiny: Tiny, tmp_path: Path) -> None:
    trainers.check_kill_anywhere(lambda: make(tiny), tmp_path, max_kills=3)
    trainers.check_all_state_is_declared(lambda: make(tiny), tmp_path)


@pytest.mark.parametrize("make", [with_plateau, with_hook])
def test_a_resume_that_forgets_the_rate_is_found_out(make: Any, tiny: Tiny, tmp_path: Path) -> None:
    inert = {
        "model",
        "optimizer",
        "update",
        "train_data",
        "write_log",
        "milestones",
        "run",
        "random",
    }
    trainers.check_negative_controls(
        lambda: make(tiny), tmp_path, inert=[*inert, "logger", "callback.setsrates"]
    )


def test_a_run_says_that_it_reduced_the_rate(tiny: Tiny, tmp_path: Path) -> None:
    section = {**PLATEAU, "min_delta": 1e6, "cooldown": 0}
    result = Trainer(tiny(max_epochs=3, learning_rate_schedule=section)).fit(root=str(tmp_path))
    told = [
        line for line in lines(result.run_dir, "events.jsonl") if line["event"] == "learning_rate"
    ]
    assert len(told) == 2


def test_a_state_from_before_there_was_the_part_is_taken(tiny: Tiny) -> None:
    trainer = Trainer(tiny())
    assert trainer.migrated({"run": {}})["learning_rate"] == {"override": None, "plateau": None}
