"""A sweep tries points, scores them by the mean over their seeds, and goes on where it was left."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

import ludus
from ludus.cli.listing import summary
from ludus.config import strict_yaml
from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError
from ludus.session.build import build_trainer, rebuild_trainer
from ludus.session.remote.logged_run import logged_run
from ludus.show.report.files import read_run
from ludus.show.report.groups import grouped
from ludus.store.local import LocalStorage
from ludus.sweep import RunEnd, Sweeper, Task, budget as sweep_budget
from ludus.sweep.record import SweepRecord
from ludus.sweep.run import SweptSession
from ludus.sweep.seed_queue import SeedQueue
from tests.sweep.hill import Climber, HillConfig, HillTrainer
from tests.sweep.small import ASHA, SAMPLERS, WILCOXON, among, batches, sweep_data, swept, within


@pytest.mark.covers("000-S13", "000-M1")
def test_a_sweep_returns_its_trials_and_the_best_config(tmp_path: Path) -> None:
    result = ludus.Sweeper(sweep_data(tmp_path)).sweep(
        count=5, root=tmp_path / "sweeps", show_on="none"
    )
    assert result.status == "finished"
    assert [row["trial"] for row in result.table()] == [0, 1, 2, 3, 4]
    scores = [row["score"] for row in result.table()]
    assert result.best is not None
    assert result.best.row()["score"] == max(scores)
    assert result.best_config is not None
    assert result.best_config["x"] == result.best.point["x"]
    ready = yaml.safe_load((tmp_path / "sweeps/climb/best.yaml").read_text())
    assert ready == result.best_config.model_dump(mode="json")
    assert json.loads((tmp_path / "sweeps/climb/trials.json").read_text())[0] == result.best.row()


def test_each_trial_runs_every_seed_and_its_score_is_their_mean_with_an_interval(
    tmp_path: Path,
) -> None:
    result = swept(tmp_path, seeds="3-5", budget__max_trials=2)
    for trial in result.trials:
        assert list(trial.runs) == [3, 4, 5]
        values = [run.value for run in trial.runs.values()]
        assert trial.score is not None
        assert trial.score.mean == pytest.approx(sum(v for v in values if v is not None) / 3)
        assert trial.score.low < trial.score.mean < trial.score.high  # type: ignore[operator]
    one, two = result.trials
    assert one.values != two.values


def test_every_run_is_an_ordinary_one(tmp_path: Path) -> None:
    result = swept(tmp_path, budget__max_trials=1, seeds=[4])
    place = tmp_path / "sweeps/climb/runs/0000-seed4"
    told = summary(LocalStorage(place))
    assert (told["status"], told["exact"]) == ("finished", "expected")
    trainer, _ = rebuild_trainer(place, [])
    assert trainer.config.seed == 4
    assert trainer.config.x == result.trials[0].point["x"]
    assert result.trials[0].runs[4].run == "runs/0000-seed4"


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sweep_that_is_over_is_not_run_again_and_one_with_more_trials_goes_on(
    tmp_path: Path, sampler: str
) -> None:
    space = {"x": within(0.0, 1.0), "y": within(0.0, 1.0)}
    if sampler == "grid":
        space = {"x": among(0.1, 0.2, 0.3), "y": among(0.5, 0.6)}
    common = {"sampler": SAMPLERS[sampler], "space": space, "base": None}
    first = swept(tmp_path, **common, budget__max_trials=3)
    runs = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("metrics.jsonl")}
    again = swept(tmp_path, **common, budget__max_trials=3)
    assert again.table() == first.table()
    more = swept(tmp_path, **common, budget__max_trials=6)
    assert more.table()[:3] == first.table()
    assert len(more.trials) == 6
    assert {p: p.stat().st_mtime_ns for p in runs} == runs
    # As if it had never ended: what a sampler asks follows from the seed and from what it was told.
    other = tmp_path / "other"
    other.mkdir()
    at_once = swept(other, **common, budget__max_trials=6)
    assert [t.point for t in at_once.trials] == [t.point for t in more.trials]


def test_another_seed_of_the_sweep_asks_for_other_points(tmp_path: Path) -> None:
    points = []
    for seed in (1, 1, 2):
        folder = tmp_path / str(len(points))
        folder.mkdir()
        points.append([t.point for t in swept(folder, seed=seed, budget__max_trials=2).trials])
    assert points[0] == points[1]
    assert points[0] != points[2]


@pytest.mark.covers("002-S13")
def test_a_grid_tries_every_combination_once_and_ends(tmp_path: Path) -> None:
    space = {"x": among(0.1, 0.3), "y": {**within(0.5, 0.7), "step": 0.1}}
    result = swept(tmp_path, sampler=SAMPLERS["grid"], space=space, budget__max_trials=99)
    found = [(t.point["x"], t.point["y"]) for t in result.trials]
    assert found == [(x, y) for x in (0.1, 0.3) for y in (0.5, 0.6, 0.7)]


def test_the_model_of_a_sampler_finds_the_top_of_the_hill(tmp_path: Path) -> None:
    result = swept(
        tmp_path,
        sampler=SAMPLERS["gp"],
        budget__max_trials=14,
        fixed={"noise": 0.0, "max_steps": 1},
    )
    assert result.best is not None
    assert abs(result.best.point["x"] - 0.3) < 0.15
    assert abs(result.best.point["y"] - 0.6) < 0.15


def test_the_best_is_by_the_direction_of_the_metric(tmp_path: Path) -> None:
    metric = {"name": "hill/score", "direction": "min", "take": "best", "confidence": 0.9}
    result = swept(tmp_path, metric=metric)
    scores = [row["score"] for row in result.table()]
    assert result.best is not None
    assert result.best.row()["score"] == min(scores)


@pytest.mark.parametrize("how", ["all at once", "in batches"])
def test_a_run_that_does_worse_is_pruned_and_can_be_resumed(tmp_path: Path, how: str) -> None:
    more = batches(batch_size=2) if how == "in batches" else {}
    space = {"x": among(0.3, 0.9), "y": among(0.6, 0.95)}
    result = swept(
        tmp_path, sampler=SAMPLERS["grid"], space=space, pruner=ASHA, budget__max_trials=4, **more
    )
    assert [trial.state for trial in result.trials][:1] == ["complete"]
    pruned = [trial for trial in result.trials if trial.state == "pruned"]
    assert pruned
    assert "asha" in str(pruned[0].reason)
    place = tmp_path / "sweeps/climb" / pruned[0].runs[0].run
    assert summary(LocalStorage(place))["status"] == "pruned"
    assert summary(LocalStorage(place))["counters"]["opt_steps"] < 6
    trainer, storage = rebuild_trainer(place, [])
    trainer.set_storage(storage)
    done = trainer.fit(resume=True)
    assert (done.status, done.counters["opt_steps"]) == ("finished", 6)
    # Resumed, it ends as one that was never pruned.
    alone = ludus.build_trainer(trainer.config).fit(root=str(tmp_path / "alone"))
    lines = [Path(str(run), "metrics.jsonl").read_bytes() for run in (place, alone.run_dir)]
    assert lines[0] == lines[1]
    # What the sweep knows of it stays as it was.
    assert (
        swept(
            tmp_path,
            sampler=SAMPLERS["grid"],
            space=space,
            pruner=ASHA,
            budget__max_trials=4,
            **more,
        ).table()
        == result.table()
    )


def test_a_trial_that_is_worse_on_its_first_seeds_does_not_run_the_others(tmp_path: Path) -> None:
    space = {"x": among(0.3, 0.9)}
    result = swept(
        tmp_path, sampler=SAMPLERS["grid"], space=space, seeds="0-5", seed_pruner=WILCOXON,
        fixed={"y": 0.6, "noise": 0.1},
    )  # fmt: skip
    one, two = result.trials
    assert (one.state, len(one.runs)) == ("complete", 6)
    assert (two.state, len(two.runs)) == ("pruned", 2)
    assert "wilcoxon: worse than the best trial on 2 seeds" in str(two.reason)


def test_steps_of_all_runs_are_a_budget(tmp_path: Path) -> None:
    result = swept(tmp_path, budget__max_trials=None, budget__max_opt_steps=18, seeds=[0, 1])
    assert len(result.trials) == 2  # 12 steps each


def test_a_budget_of_steps_that_runs_do_not_count_is_told_at_the_first_runs_end(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"which these runs do not count; they count opt_steps"):
        swept(tmp_path, budget__max_env_steps=100)


def test_a_signal_while_the_last_checkpoint_is_made_stops_the_sweep(
    tmp_path: Path,
) -> None:
    class Last(Climber):
        is_over = False

        def state_dict(self) -> dict[str, Any]:
            if self.is_over:
                self.is_over = False
                signal.raise_signal(signal.SIGTERM)
            return super().state_dict()

    class Signalled(HillTrainer):
        def prepare(self, *, max_steps: int | None) -> None:
            self.climber = Last(self.config.seed)

        def climb(self, run: Run) -> Mapping[str, Any]:
            self.climber.is_over = run.counters["opt_steps"] == 5
            return super().climb(run)

    def make(config: HillConfig) -> Signalled:
        return Signalled(config)

    data = sweep_data(tmp_path)
    found = Sweeper(data).sweep(root=tmp_path, show_on="none", make_trainer_fn=make)
    assert found.status == "interrupted"
    assert [trial.state for trial in found.trials] == ["complete"]


@pytest.mark.parametrize("batch", [{}, batches(batch_size=1)])
def test_a_sweep_killed_before_it_recorded_the_end_of_a_run_asks_for_the_other_trials(
    tmp_path: Path, batch: dict[str, Any]
) -> None:
    data = sweep_data(tmp_path, **batch)
    whole = Sweeper(data).sweep(root=tmp_path, show_on="none")
    record = tmp_path / "climb" / "journals" / "sweep.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    last = next(place for place, line in enumerate(lines) if "ask/0001" in line)
    record.write_text("".join(lines[: last + 1]))
    for number in (2, 3):
        shutil.rmtree(tmp_path / "climb" / "runs" / f"{number:04d}-seed0")
    again = Sweeper(data).sweep(root=tmp_path, show_on="none")
    assert again.status == "finished"
    assert again.table() == whole.table()


class Clocked:
    """Searches with a clock that goes on by so many hours in each run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now = folder, 1000.0
        self.seen: list[float] = []
        """The hours on the disk when each run began."""
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(sweep_budget, "time", clock)

    def hours(self) -> float:
        return SweepRecord(LocalStorage(self.folder / "sweeps/climb")).seconds() / 3600

    def search(self, hours: float, *, seeds: Any = "0", **budget: Any) -> int:
        """Search, and return the number of trials in all."""

        def make(config: Any) -> Any:
            self.seen.append(self.hours())
            self.now += 3600 * hours
            return build_trainer(config)

        none = {"max_trials": None, "max_env_steps": None, "max_opt_steps": None, "max_hours": None}
        sweeper = Sweeper(sweep_data(self.folder, seeds=seeds, budget={**none, **budget}))
        root = self.folder / "sweeps"
        return len(sweeper.sweep(root=root, make_trainer_fn=make, show_on="none").trials)


@pytest.fixture
def clocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clocked:
    return Clocked(tmp_path, monkeypatch)


def test_hours_are_a_budget_and_count_on_where_the_sweep_was_left(clocked: Clocked) -> None:
    assert clocked.search(2, max_trials=2) == 2
    assert clocked.search(2, max_hours=3.9) == 2
    assert clocked.search(2, max_hours=7.0) == 4
    assert clocked.search(2, max_hours=8.0) == 4


def test_the_hours_of_a_run_that_was_interrupted_count(
    clocked: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SweptSession._look

    def interrupted(session: SweptSession, run: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        look(session, run)

    with monkeypatch.context() as patch:
        patch.setattr(SweptSession, "_look", interrupted)
        assert clocked.search(5, max_hours=6.0) == 1
    assert clocked.hours() == pytest.approx(5.0)
    assert clocked.search(0.5, max_hours=5.4) == 1
    assert clocked.hours() == pytest.approx(5.5)


def test_the_hours_are_recorded_whenever_a_run_begins_or_ends(clocked: Clocked) -> None:
    assert clocked.search(5, seeds="0-2", max_hours=1.0) == 1
    assert clocked.seen == pytest.approx([0.0, 5.0, 10.0])


def test_a_point_whose_values_contradict_each_other_is_a_failed_trial(tmp_path: Path) -> None:
    base = tmp_path / "table.yaml"
    base.write_text(ludus.example("ppo").to_yaml())
    space = {"minibatch_size": among(64, 48)}
    data = sweep_data(
        tmp_path,
        base=str(base),
        space=space,
        sampler=SAMPLERS["grid"],
        fixed={"settings.loggers": []},
    )
    data["metric"] = {**data["metric"], "name": "eval/return"}
    from ludus.sweep.base import Base
    from ludus.sweep.config import given_sweep

    found = Base(given_sweep(data))
    with pytest.raises(ConfigError):
        found.config_of({"minibatch_size": 48}, 0, "x")


def test_a_sweep_whose_runs_cannot_even_begin_is_given_up_after_the_third(tmp_path: Path) -> None:
    data = sweep_data(
        tmp_path, base="supervised-table", budget__max_trials=50,
        space={"optimizer.learning_rate": within(0.1, 0.2)},
        metric={"name": "validation/epoch_loss", "direction": None, "take": "best", "confidence": 0.9},
    )  # fmt: skip
    with pytest.raises(LudusError, match=r"the first 3 runs failed before .* no such file"):
        Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")


def test_a_metric_that_nobody_logs_is_told_at_the_first_runs_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"never logged. Did you mean 'hill/score'\?"):
        swept(tmp_path, metric__name="hil/score", metric__direction="max")
    assert len(list((tmp_path / "sweeps/climb/runs").iterdir())) == 1


def test_a_pruner_by_a_counter_that_runs_lack_is_told_at_the_first_runs_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is env_steps, which these runs do not"):
        swept(tmp_path, pruner={**ASHA, "counter": "env_steps"})


@pytest.mark.covers("000-S13")
def test_a_script_may_make_the_trainer_of_each_run(tmp_path: Path) -> None:
    made = []

    def make(config: Any) -> Any:
        made.append(config.x)
        return ludus.build_trainer(config)

    sweeper = Sweeper(sweep_data(tmp_path, budget__max_trials=2))
    result = sweeper.sweep(root=tmp_path / "sweeps", make_trainer_fn=make, show_on="none")
    assert made == [trial.point["x"] for trial in result.trials]


def test_the_best_config_is_trained_with_seeds_that_no_trial_has_had(tmp_path: Path) -> None:
    data = sweep_data(tmp_path, seeds="0-1", budget__max_trials=3)
    root = tmp_path / "sweeps"
    with pytest.raises(LudusError, match="holds no sweep yet"):
        Sweeper(data).train_best(2, root=root, show_on="none")
    assert not root.exists()
    with pytest.raises(
        ConfigError,
        match="the trials had seed 0, by which the best was chosen; give others, such as 2",
    ):
        Sweeper(data).train_best([0, 1, 2], root=root, show_on="none")
    best = Sweeper(data).sweep(root=root, show_on="none").best
    found = Sweeper(data).train_best(3, root=root, show_on="none")
    assert best is not None
    assert found.trial == best.number
    assert [run.seed for run in found.runs] == [2, 3, 4]
    assert found.score is not None
    assert found.score.count == 3
    names = sorted(path.name for path in (root / "climb/best").iterdir())
    assert names == [f"{best.number:04d}-seed{seed}" for seed in (2, 3, 4)]
    before = {p: p.stat().st_mtime_ns for p in (root / "climb/best").rglob("metrics.jsonl")}
    again = Sweeper(data).train_best([2, 3, 4], root=root, show_on="none")
    assert again.score == found.score
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_seeds_of_the_trials_and_too_many_cannot_judge_the_best(tmp_path: Path) -> None:
    sweeper = Sweeper(sweep_data(tmp_path, seeds=[0, 1], budget__max_trials=1))
    sweeper.sweep(root=tmp_path, show_on="none")
    with pytest.raises(
        ConfigError, match=r"the trials had seed 1, by which .*; give others, such as 2"
    ):
        sweeper.train_best([7, 1], root=tmp_path, show_on="none")
    with pytest.raises(ConfigError, match=r"the best config has 99999 seeds; 10000 are the most"):
        sweeper.train_best(99_999, root=tmp_path, show_on="none")


def test_the_runs_of_a_sweep_name_it_and_only_those_of_a_trial_are_a_group(tmp_path: Path) -> None:
    swept(tmp_path, budget__max_trials=2, seeds=[0, 1])
    places = sorted(tmp_path.glob("sweeps/climb/runs/*"))
    notes = [json.loads((place / "run.json").read_text()) for place in places]
    assert [note["sweep"] for note in notes] == ["climb"] * 4
    assert logged_run(LocalStorage(places[0]), asked_by="a service").group == "climb"
    groups = grouped([read_run(str(place)) for place in places])
    assert [list(group.runs) for group in groups] == [[0, 1], [2, 3]]


def test_the_best_config_is_there_while_the_sweep_goes_on(tmp_path: Path) -> None:
    data, seen = sweep_data(tmp_path, budget__max_trials=5), []
    best = tmp_path / "sweeps/climb/best.yaml"

    def make(config: Any) -> Any:
        seen.append(strict_yaml.parse(best.read_text(), source="best") if best.exists() else None)
        return build_trainer(config)

    result = Sweeper(data).sweep(root=tmp_path / "sweeps", make_trainer_fn=make, show_on="none")
    scores = [trial.score.mean for trial in result.trials if trial.score is not None]
    assert seen[0] is None
    for number, found in enumerate(seen[1:], start=1):
        expected = result.trials[scores.index(max(scores[:number]))].point
        assert {key: found[key] for key in expected} == expected


class OneLost:
    """An engine that loses the machine of the first run once, and executes none."""

    is_here, capacity = False, 1

    def __init__(self) -> None:
        self.launched: list[int] = []
        self._tasks: list[Task] = []

    def open(self, listener: Any, directory: str) -> None:
        self._listener = listener

    def launch(self, task: Task) -> None:
        self.launched.append(task.seed)
        self._tasks.append(task)

    def work(self, seconds: float) -> None:
        task = self._tasks.pop()
        is_lost = len(self.launched) == 1
        self._listener.ended(task, RunEnd("interrupted" if is_lost else "finished", None, {}))

    def pause(self) -> None: ...
    def close(self) -> None: ...


def test_a_run_whose_machine_is_lost_is_launched_again_and_so_are_the_other_seeds() -> None:
    class Owner:
        ends: ClassVar[list[tuple[int, str]]] = []

        def task(self, seed: int) -> Task:
            return Task(0, seed, {}, "", "", None, False)

        def logged(self, task: Task, point: Any) -> None: ...
        def ended(self, task: Task, end: RunEnd) -> None:
            self.ends.append((task.seed, end.status))

    engine = OneLost()
    assert SeedQueue(engine, Owner(), "", [1, 2, 3]).run()  # type: ignore[arg-type]
    assert engine.launched == [1, 1, 2, 3]
    assert Owner.ends == [(1, "interrupted"), (1, "finished"), (2, "finished"), (3, "finished")]
