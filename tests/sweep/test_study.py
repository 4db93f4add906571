"""What Optuna knows is rebuilt from the record, and asks for the points that it would have asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from ludus.config.registry import find
from ludus.config.sections import kind_of, validate
from ludus.core.errors import LudusError, StorageError
from ludus.judge.confidence import mean_interval
from ludus.sweep import Sweeper
from ludus.sweep.space import Space
from ludus.sweep.study import Study
from ludus.sweep.trials import RunOutcome, SweepTrial
from ludus.sweep.variables import Choice, IntLogRange, IntRange, LogRange, Range
from tests.sweep.small import SAMPLERS, sweep_data

SPACE = Space(
    {
        "rate": LogRange(kind="log_range", low=1e-4, high=1.0, when=None),
        "drop": Range(kind="range", low=0.0, high=0.5, step=0.1, when=None),
        "widths": Choice(kind="choice", values=[[8], [8, 8], [64]], when=None),
        "layers": IntRange(kind="int_range", low=1, high=4, step=1, when=None),
        "units": IntLogRange(kind="int_log_range", low=1, high=64, when={"layers_kind": ["a"]}),
    }
)
KINDS = {**SAMPLERS, "tpe alone": {"kind": "tpe", "startup_trials": 3, "multivariate": False}}
del KINDS["grid"]


def study(kind: str) -> Study:
    section = KINDS[kind]
    cls = find("sampler", section["kind"])
    return Study(cls(validate(cls.Config, section, source="x"), SPACE), seed=3, mode="min")


def end(trial: SweepTrial) -> None:
    """End a trial: some complete, some pruned, some failed, by their numbers."""
    value = trial.point["rate"] + trial.point["drop"] + trial.number % 3
    trial.state = {3: "pruned", 5: "failed"}.get(trial.number % 6, "complete")  # type: ignore[assignment]
    status: Any = "finished" if trial.state == "complete" else trial.state
    trial.runs[0] = RunOutcome(0, status, None, value, {"opt_steps": 3}, 4, "runs/x")
    trial.score = mean_interval([value], confidence=0.9) if trial.state == "complete" else None
    trial.is_told = True


@pytest.mark.parametrize("kind", KINDS)
def test_a_rebuilt_study_asks_for_the_same_points_with_trials_still_running(kind: str) -> None:
    unbroken, trials, order = study(kind), dict[int, SweepTrial](), list[tuple[str, int]]()
    for number in range(14):
        if number >= 6:
            # Another process, which has only the record: some trials run, others have ended.
            again = study(kind)
            again.rebuild({n: trials[n] for n in range(number)}, order)
            assert again.ask(number) == (point := unbroken.ask(number))
        else:
            point = unbroken.ask(number)
        trials[number] = SweepTrial(number, point, number)
        order.append(("ask", number))
        if number % 2:
            for told in (number - 1, number):
                end(trials[told])
                unbroken.tell(trials[told])
                order.append(("tell", told))
    assert len({str(trial.point) for trial in trials.values()}) == 14
    assert all("units" not in trial.point for trial in trials.values())


def test_an_evolution_strategy_that_would_go_on_elsewhere_is_refused() -> None:
    found = study("cmaes")
    trial = SweepTrial(0, {**found.ask(0), "rate": 0.5}, 0)
    with pytest.raises(LudusError, match="no longer chooses the point that it chose for trial 0"):
        study("cmaes").rebuild({0: trial}, [("ask", 0)])


def test_the_export_is_a_study_that_optuna_reads(tmp_path: Path) -> None:
    data = sweep_data(tmp_path, seeds=[0, 1], budget__max_trials=3)
    sweeper = Sweeper(data)
    result = sweeper.sweep(root=tmp_path / "sweeps", show_on="none")
    place = tmp_path / "out" / "study.db"
    for _ in range(2):
        assert sweeper.export_optuna(place, root=tmp_path / "sweeps") == place
    found = optuna.load_study(study_name="climb", storage=f"sqlite:///{place}")
    assert [trial.params for trial in found.trials] == [dict(t.point) for t in result.trials]
    assert result.best is not None
    assert found.best_trial.number == result.best.number
    assert found.trials[0].intermediate_values == dict(enumerate(result.trials[0].values.values()))
    assert found.trials[0].user_attrs["runs"] == ["runs/0000-seed0", "runs/0000-seed1"]
    assert [path.name for path in place.parent.iterdir()] == ["study.db"]


def test_an_export_overwrites_nothing_of_the_users(tmp_path: Path) -> None:
    data = sweep_data(tmp_path, budget__max_trials=1)
    Sweeper(data).sweep(root=tmp_path / "sweeps", show_on="none")
    mine = tmp_path / "notes.txt"
    mine.write_text("mine")
    with pytest.raises(StorageError, match="was not written by ludus as a study of Optuna"):
        Sweeper(data).export_optuna(mine, root=tmp_path / "sweeps")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["notes.txt", "why?.db"])
def test_a_place_that_no_study_can_be_written_to_is_refused_before_the_search(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="choose another"):
        Sweeper(sweep_data(tmp_path)).check_export(tmp_path / name)


def test_a_study_in_a_place_where_no_file_can_be_made_is_one_sentence(tmp_path: Path) -> None:
    Sweeper(sweep_data(tmp_path, budget__max_trials=1)).sweep(root=tmp_path, show_on="none")
    with pytest.raises(StorageError, match=r"study.db cannot be written: "):
        Sweeper(sweep_data(tmp_path)).export_optuna("/proc/study.db", root=tmp_path)


def test_the_sampler_of_a_file_is_the_one_that_it_names(tmp_path: Path) -> None:
    assert kind_of(Sweeper(sweep_data(tmp_path, sampler=SAMPLERS["gp"])).config.sampler) == "gp"
