"""A population: the worst members go on from the checkpoints of better ones, with changed values."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ludus.config import registry, strict_yaml
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from ludus.store import directory, forks
from ludus.store.checkpoint_files import numbers, peek
from ludus.store.local import LocalStorage
from ludus.sweep import Sweeper, SweepResult
from ludus.sweep.curve import Point
from ludus.sweep.population.config import ExploreSection
from ludus.sweep.population.record import PopulationRecord
from ludus.sweep.population.selection import (
    Contender,
    exploit,
    explore,
    first_point,
    num_replaced,
)
from ludus.sweep.run import SweptSession
from ludus.sweep.space import Space
from ludus.sweep.trials import Leg
from ludus.sweep.variables import Choice, IntRange, LogRange, Range
from ludus.sweep.winner import leg_after
from tests.command_line import in_process
from tests.sweep.small import (
    HILL,
    INLINE,
    LOCAL,
    among,
    population_data,
    within,
    write_summing,
)
from tests.sweep.test_killed import lives, unlike_runs

if TYPE_CHECKING:
    from tests.faults.warm import WarmProcess


def trained(folder: Path, **changed: Any) -> SweepResult:
    """Train a population to its end."""
    data = population_data(folder, **changed)
    return Sweeper(data).sweep(root=folder / "sweeps", show_on="none")


def record_of(folder: Path) -> PopulationRecord:
    return PopulationRecord(LocalStorage(folder / "sweeps/climb"))


def run_of(folder: Path, member: int) -> LocalStorage:
    return LocalStorage(folder / f"sweeps/climb/runs/{member:04d}")


def metrics_of(folder: Path, member: int) -> list[dict[str, Any]]:
    return directory.read_lines(run_of(folder, member), "metrics.jsonl")


# What happens between two generations.


@pytest.mark.covers("001-M10")
def test_the_worst_members_go_on_from_the_checkpoints_of_the_best(tmp_path: Path) -> None:
    result = trained(tmp_path)
    record = record_of(tmp_path)
    assert [trial.state for trial in result.trials] == ["complete"] * 5
    assert [sorted(ends) for ends in record.ends.values()] == [[0, 1, 2, 3, 4]] * 3
    for generation, moves in record.moves.items():
        values = {member: end.value for member, end in record.ends[generation].items()}
        order = sorted(values, key=lambda member: -values[member])  # type: ignore[operator]
        assert sorted(move.member for move in moves) == sorted(order[-2:])
        assert {move.source for move in moves} <= {*order[:2]}
    assert record.generation == 2


def test_a_copy_has_the_log_of_its_source_and_goes_on_with_its_own_values(tmp_path: Path) -> None:
    trained(tmp_path)
    record = record_of(tmp_path)
    *_, last = record.moves[1]
    own, source = (metrics_of(tmp_path, one) for one in (last.member, last.source))
    until = record.ends[1][last.source].num_points
    assert own[:until] == source[:until]
    assert own[until:] != source[until:]
    text = run_of(tmp_path, last.member).read("config.yaml").decode()
    config = strict_yaml.parse(text, source="config.yaml")
    assert {key: config[key] for key in ("x", "y", "seed")} == {**last.point, "seed": last.seed}
    note = directory.read_note(run_of(tmp_path, last.member))
    assert (note["name"], note["run_id"]) != (f"{last.source:04d}", None)
    assert note["run_id"] != directory.read_note(run_of(tmp_path, last.source))["run_id"]


def test_what_changed_is_an_event_of_the_run_and_a_reason_against_its_exactness(
    tmp_path: Path,
) -> None:
    trained(tmp_path)
    *_, last = record_of(tmp_path).moves[1]
    run = run_of(tmp_path, last.member)
    *_, event = directory.events(run, "exploited")
    assert (event["copied_from"], event["generation"]) == (f"{last.source:04d}", 1)
    told = {one["key"]: one["new"] for one in directory.events(run, "config_changed")}
    assert told == dict(last.point)
    assert directory.read_note(run)["changes"][-1]["boundary"] == event["boundary"]
    ending = directory.last_ending(run)
    assert ending is not None
    assert ending["event"] == "finished"
    assert "its x was changed at boundary 5" in ending["inexact_because"]
    kept = {move.member for moves in record_of(tmp_path).moves.values() for move in moves}
    (whole, *_) = {*range(5)} - kept
    assert peek(run_of(tmp_path, whole))["inexact_because"] == []


def test_a_copy_that_keeps_the_values_of_its_source_ends_as_its_source_does(
    tmp_path: Path,
) -> None:
    result = trained(tmp_path, explore__perturb=[1.0], explore__resample_probability=1e-9)
    moves = [move for moves in record_of(tmp_path).moves.values() for move in moves]
    assert moves
    for move in record_of(tmp_path).moves[1]:
        assert metrics_of(tmp_path, move.member) == metrics_of(tmp_path, move.source)
    assert result.best is not None


def test_the_schedule_of_the_best_is_written_and_its_last_values_are_best_yaml(
    tmp_path: Path,
) -> None:
    result = trained(tmp_path, seed=0, fixed={"noise": 0.0})
    assert result.best is not None
    assert result.best_config is not None
    record = record_of(tmp_path)
    legs = result.schedule
    assert dict(legs[-1].point) == dict(result.best.point)
    untils = [leg.until for leg in legs]
    assert untils == [("opt_steps", 2), ("opt_steps", 4), None]
    # The value after which a generation ends is logged before the counter of that step moves on.
    assert [leg.start for leg in legs] == [0, 3, 5]
    assert (result.best_config.x, result.best_config.y) == tuple(result.best.point.values())  # type: ignore[attr-defined]
    ancestors = record.ancestors(result.best.number)
    assert len(ancestors) == 3
    assert ancestors[-1] == result.best.number
    written = json.loads((tmp_path / "sweeps/climb/schedule.json").read_text())
    assert written == [leg.as_json() for leg in legs]
    assert len(written) > 1


def course(run: LocalStorage) -> list[float]:
    """Return the value of x that each step of a run was trained with."""
    return [line["hill/x"] for line in directory.read_lines(run, "metrics.jsonl")]


@pytest.mark.parametrize(
    ("score_every", "exploit_every", "seed"), [(1, 4, 2), (4, 1, 1), (4, 1, 2), (4, 1, 3)]
)
def test_the_best_is_trained_again_with_its_schedule_and_other_seeds(
    tmp_path: Path, score_every: int, exploit_every: int, seed: int
) -> None:
    """Every step has the value that it had, however rarely the metric is logged."""
    base = write_summing(tmp_path, score_every=score_every, max_steps=24)
    rate = {"kind": "log_range", "low": 0.01, "high": 100.0, "when": None}
    data = population_data(
        tmp_path, base=base, seed=seed, space={"x": rate},
        population__exploit_every=exploit_every,
    )  # fmt: skip
    root = tmp_path / "sweeps"
    result = Sweeper(data).sweep(root=root, show_on="none")
    assert result.best is not None
    assert result.best_config is not None
    own = course(run_of(tmp_path, result.best.number))
    assert len({*own}) > 2
    assert [leg.point["x"] for leg in result.schedule] == [
        x for x, before in zip(own, [None, *own], strict=False) if x != before
    ]
    assert result.best_config["x"] == result.best.point["x"] == own[-1]
    Sweeper(data).train_best([7], root=root, show_on="none")
    (again,) = (root / "climb/best").iterdir()
    assert course(LocalStorage(again)) == own


def test_a_run_that_logs_more_rarely_takes_up_the_values_of_the_steps_that_it_has_come_to() -> None:
    legs = [Leg({"x": step}, step, ("opt_steps", step)) for step in (2, 4, 6)]
    legs += [Leg({"x": None}, 6)]

    def after(*steps: int) -> Any:
        return leg_after(legs, [Point({"opt_steps": step}, 0.0) for step in steps]).point["x"]

    assert [after(), after(1), after(2), after(2, 3), after(2, 4), after(2, 4, 6)] == [
        2, 2, 4, 4, 6, None,
    ]  # fmt: skip
    assert [after(3), after(5), after(5, 10), after(7)] == [4, 6, None, None]


def test_a_member_that_fails_is_replaced_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = population_data(
        tmp_path, seed=2, space={"x": within(0.0, 1.0), "mood": among("well", "raises")}
    )
    result = Sweeper(data).sweep(root=tmp_path / "sweeps")
    record = record_of(tmp_path)
    failed = [
        (g, m) for g, ends in record.ends.items() for m, e in ends.items() if e.status == "failed"
    ]
    assert failed
    for generation, member in failed:
        if generation in record.moves:
            assert member in {move.member for move in record.moves[generation]}
    assert any(trial.state == "complete" for trial in result.trials)
    assert "the rope broke" in capsys.readouterr().out


def test_a_population_of_which_all_fail_is_an_error_with_the_first_reason(tmp_path: Path) -> None:
    with pytest.raises(
        LudusError, match=r"all 5 members failed, the first because of: .*rope broke"
    ):
        trained(tmp_path, fixed={"mood": "raises"})


@pytest.mark.usefixtures("warm_children")
def test_workers_train_the_same_population_as_this_process(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, engine in zip(folders, (INLINE, LOCAL), strict=True):
        folder.mkdir()
        trained(folder, engine=engine, population__size=3)
    assert unlike(*folders) == []


@pytest.mark.usefixtures("warm_children")
def test_a_member_whose_worker_dies_is_replaced(tmp_path: Path) -> None:
    space = {"x": within(0.0, 1.0), "mood": among("well", "dies")}
    result = trained(tmp_path, seed=2, space=space, engine=LOCAL, population__size=4)
    record = record_of(tmp_path)
    dead = [member for member, end in record.ends[0].items() if end.status == "failed"]
    assert dead
    assert {*dead} <= {move.member for move in record.moves[0]}
    assert "was ended by SIGKILL" in (record.ends[0][dead[0]].reason or "")
    assert any(trial.state == "complete" for trial in result.trials)


def test_the_command_tells_of_each_generation_and_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "climb.yaml").write_text(strict_yaml.dump(population_data(tmp_path)))
    ludus = in_process(monkeypatch, capsys)
    plugin = ["--plugin", HILL]
    assert "exploit: the 2 worst copy" in ludus("plan", "climb.yaml", *plugin).out
    lines = ludus("sweep", "climb.yaml", "seed=0", *plugin).out.splitlines()
    assert [line.split(": best")[0] for line in lines[:2]] == [
        "generation 0 at opt_steps 3", "generation 1 at opt_steps 5",
    ]  # fmt: skip
    assert all(len(line) < 160 for line in lines)
    assert any(line == "finished: 5 members (5 complete)" for line in lines)
    assert any(line.endswith("one after the other: sweeps/climb/schedule.json") for line in lines)
    found = ludus("sweep", "climb.yaml", "seed=0", "--json", *plugin).json
    assert [leg["start"] for leg in found["schedule"]] == [0, 3, 5]
    page = Path(ludus("report", "sweeps/climb").out.strip()).read_text()
    assert "<h2>Lineage</h2>" in page


def test_the_shipped_file_trains_and_a_copy_learns_at_its_own_rate(tmp_path: Path) -> None:
    sweeper = Sweeper(
        registry.example_path("population"),
        ["engine={kind: inline}", "population.size=2", "population.quantile=0.5",
         "population.exploit_every=1"],
    )  # fmt: skip
    fixed = {**sweeper.config.fixed, "max_epochs": 2}
    data = {**sweeper.config.model_dump(), "fixed": fixed}
    result = Sweeper(data).sweep(root=tmp_path, show_on="none")
    (move,) = PopulationRecord(LocalStorage(result.sweep_dir)).moves[0]
    run = LocalStorage(Path(result.sweep_dir) / f"runs/{move.member:04d}")
    rates = [
        line["train/learning_rate"]
        for line in directory.read_lines(run, "metrics.jsonl")
        if "train/learning_rate" in line
    ]
    assert rates[-1] == pytest.approx(move.point["optimizer.learning_rate"])
    assert rates[0] != pytest.approx(rates[-1])


def test_an_interrupted_population_saves_and_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    trained(folders[0])
    look, seen = SweptSession._look, [0]

    def interrupted(self: SweptSession, run: Any) -> None:
        seen[0] += 1
        if seen[0] == 20:
            os.kill(os.getpid(), signal.SIGINT)
        look(self, run)

    with monkeypatch.context() as patch:
        patch.setattr(SweptSession, "_look", interrupted)
        assert trained(folders[1]).status == "interrupted"
    assert trained(folders[1]).status == "finished"
    assert unlike(*folders) == []


# Who copies whom, and with which values.


def contenders(*values: float | None) -> list[Contender]:
    return [Contender(number, value, value is not None) for number, value in enumerate(values)]


def test_a_quantile_is_replaced_and_so_is_whatever_has_no_value() -> None:
    members = contenders(5.0, 1.0, 4.0, 2.0, None, 3.0, 6.0, 0.5)
    found = exploit(members, "max", quantile=0.25, seed=0, generation=3)
    assert sorted(found) == [4, 7]
    assert {*found.values()} <= {0, 6}
    lower = exploit(members, "min", quantile=0.25, seed=0, generation=3)
    assert sorted(lower) == [4, 6]
    assert {*lower.values()} <= {1, 7}


def test_one_member_at_least_is_replaced_and_none_where_no_source_goes_on() -> None:
    assert list(exploit(contenders(1.0, 2.0, 3.0), "max", quantile=0.1, seed=0, generation=0)) == [
        0
    ]
    ended = [Contender(0, 1.0, False), Contender(1, 2.0, False)]
    assert exploit(ended, "max", quantile=0.5, seed=0, generation=0) == {}
    # The best has ended: the best of those that go on is copied.
    members = [Contender(0, 9.0, False), Contender(1, 5.0, True), Contender(2, 1.0, True)]
    assert exploit(members, "max", quantile=0.1, seed=0, generation=0) == {2: 1}


def explored(variable: Any, value: Any, *, resample: float = 0.0, **section: Any) -> Any:
    config = validate(
        ExploreSection, {"perturb": [1.25], "resample_probability": resample, **section}, source="x"
    )
    point, _ = explore(
        Space({"key": variable}), config, {"key": value}, seed=0, generation=0, member=0
    )
    return point["key"]


@pytest.mark.parametrize(
    ("kind", "keys", "value", "factor", "expected"),
    [
        (Range, {"low": 0.0, "high": 10.0, "step": None}, 4.0, 1.25, 5.0),
        (Range, {"low": 0.0, "high": 4.5, "step": None}, 4.0, 1.25, 4.5),
        (Range, {"low": 0.0, "high": 10.0, "step": 2.0}, 6.0, 1.25, 8.0),
        (LogRange, {"low": 0.1, "high": 10.0}, 0.11, 0.8, 0.1),
        (Range, {"low": 0.0, "high": 1.0, "step": 0.1}, 0.2, 1.25, 0.3),
        (Range, {"low": 0.0, "high": 1.0, "step": 0.1}, 0.1, 0.8, 0.0),
        (Range, {"low": 0.0, "high": 1e7, "step": 1.0}, 4e6, 1.25, 5e6),
        (IntRange, {"low": 0, "high": 9, "step": 1}, 0, 1.25, 1),
        (IntRange, {"low": 1, "high": 9, "step": 1}, 2, 1.25, 3),
        (IntRange, {"low": 1, "high": 9, "step": 4}, 5, 0.8, 1),
        (Choice, {"values": ["a", "b", "c"]}, "b", 1.25, "c"),
        (Choice, {"values": ["a", "b", "c"]}, "a", 0.8, "a"),
    ],
)  # fmt: skip
def test_a_value_is_perturbed_within_its_limits(
    kind: Any, keys: dict[str, Any], value: Any, factor: float, expected: Any
) -> None:
    name = {Range: "range", LogRange: "log_range", IntRange: "int_range", Choice: "choice"}[kind]
    variable = kind(kind=name, when=None, **keys)
    assert explored(variable, value, perturb=[factor]) == pytest.approx(expected)


def test_a_fraction_of_the_members_is_replaced_in_whole_members() -> None:
    assert [num_replaced(100, 0.29), num_replaced(8, 0.25), num_replaced(3, 0.2)] == [29, 2, 1]


def test_what_a_key_draws_does_not_depend_on_the_choices_before_it() -> None:
    section = {"perturb": [0.5, 2.0], "resample_probability": 0.5}
    config = validate(ExploreSection, section, source="x")
    kind = Choice(kind="choice", values=["a", "b"], when=None)
    inner = LogRange(kind="log_range", low=0.1, high=10.0, when={"kind": ["a"]})
    last = Range(kind="range", low=0.0, high=1.0, step=None, when=None)
    space = Space({"kind": kind, "inner": inner, "last": last})
    for seed in range(20):
        point = {"kind": "a", "inner": 1.0, "last": 0.25}
        drawn = [
            explore(space, config, {**point, "kind": one}, seed=seed, generation=0, member=0)[0]
            for one in ("a", "b")
        ]
        assert drawn[0]["last"] == drawn[1]["last"]


def test_a_first_value_lies_on_a_step_however_small_the_steps_are() -> None:
    for high, step in ((1.0, 0.1), (1e-12, 1e-13)):
        variable = Range(kind="range", low=0.0, high=high, step=step, when=None)
        space = Space({"key": variable})
        drawn = {first_point(space, seed=0, member=member)["key"] for member in range(99)}
        assert drawn == {*variable.grid()}  # type: ignore[misc]


def test_a_value_is_resampled_with_its_probability() -> None:
    variable = Range(kind="range", low=0.0, high=1.0, step=None, when=None)
    config = {"perturb": [1.0]}
    assert explored(variable, 0.5, resample=0.0, perturb=[1.25]) == 0.625
    drawn = explored(variable, 0.5, resample=1.0, **config)
    assert drawn != 0.5
    assert 0.0 <= drawn <= 1.0


# Mistakes.


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"space": {"noise": within(0.0, 1.0)}},
            "'space' has 'noise', which cannot change within a run; of a hill these can: x, y, size, mood",
        ),
        ({"population__size": 1}, "'population.size' must be greater than or equal to 2"),
        ({"population__quantile": 0.6}, "'population.quantile' must be less than or equal to 0.5"),
        (
            {"population__counter": "steps"},
            "no counter is named 'steps'. Did you mean 'opt_steps'?",
        ),
        ({"seeds": "0-7"}, "'seeds' has 8 seeds, and 'population.size' is 5"),
        (
            {"explore": {"perturb": [1.0], "resample_probability": 0.0}},
            "no value would ever change; write perturb: [0.8, 1.25]",
        ),
        ({"space": {}}, "'space' is empty"),
    ],
)
def test_a_mistake_is_told_in_one_sentence_and_nothing_is_written(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        trained(tmp_path, **changed)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "sweeps").exists()


def test_a_counter_that_the_runs_do_not_count_and_an_unknown_metric_are_told(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        ConfigError, match=r"'population.counter' is epoch, which these runs do not count"
    ):
        trained(tmp_path, population__counter="epoch")
    with pytest.raises(ConfigError, match=r"'metric.name' is hill/scor, which .* never logged"):
        trained(tmp_path, name="b", metric__name="hill/scor", metric__direction="max")


def test_generations_as_long_as_the_run_are_refused(tmp_path: Path) -> None:
    data = population_data(
        tmp_path, base="supervised", space={"max_grad_norm": within(0.5, 2.0)},
        metric__name="validation/epoch_loss",
        population={"size": 2, "counter": "epoch", "exploit_every": 30, "quantile": 0.5},
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"a run has 30 epoch: no member would ever be compared"):
        Sweeper(data).plan()


def test_count_and_the_export_are_for_trials(tmp_path: Path) -> None:
    sweeper = Sweeper(population_data(tmp_path))
    with pytest.raises(ConfigError, match=r"sweep\(count=3\) is for a sweep of trials"):
        sweeper.sweep(3, root=tmp_path, show_on="none")
    with pytest.raises(ConfigError, match="--export-optuna is for a sweep of trials"):
        sweeper.export_optuna(tmp_path / "a.db", root=tmp_path)


# Killed.

DEATHS = [
    ("record", 3), ("boundary", 3), ("saved", 1), ("copy", 4), ("taken over", 2), ("saved", 2),
    ("boundary", 4), ("copy", 7), ("record", 2), ("boundary", 2),
]  # fmt: skip


def unlike(one: Path, two: Path) -> list[str]:
    """Return what differs between two populations: their records, the bytes of their runs, the best."""
    first, second = (record_of(folder) for folder in (one, two))
    for name in ("members", "ends", "moves", "generation"):
        if getattr(first, name) != getattr(second, name):
            return [name]
    names = [f"runs/{member:04d}" for member in first.members]
    files = [(folder / "sweeps/climb/best.yaml").read_bytes() for folder in (one, two)]
    return unlike_runs(one, two, names) + (["the best"] if files[0] != files[1] else [])


def test_a_population_killed_ten_times_ends_as_one_never_killed(
    warm: WarmProcess, tmp_path: Path
) -> None:
    data = {name: begun(tmp_path / name) for name in ("one", "two")}
    assert lives(warm, tmp_path / "one", data["one"], []) == 0
    assert lives(warm, tmp_path / "two", data["two"], DEATHS) == len(DEATHS)
    assert unlike(tmp_path / "one", tmp_path / "two") == []
    journal = (tmp_path / "two/sweeps/climb/journals/sweep.jsonl").read_text().splitlines()
    written = [json.loads(line)["key"] for line in journal]
    assert len(written) == len({*written}), "something was decided twice"
    told = directory.events(run_of(tmp_path / "two", 0), "exploited")
    keys = [(event["generation"], event["copied_from"]) for event in told]
    assert len(keys) == len({*keys})


def begun(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    return population_data(folder)


@pytest.mark.parametrize(
    ("wrong", "deaths"), [("one generator", [("copy", 4)]), ("pauses", [("saved", 2)])]
)
def test_the_comparison_sees_what_is_done_wrong(
    wrong: str, deaths: list[tuple[str, int]], warm: WarmProcess, tmp_path: Path
) -> None:
    data = {name: begun(tmp_path / name) for name in ("one", "two")}
    lives(warm, tmp_path / "one", data["one"], [], wrong)
    lives(warm, tmp_path / "two", data["two"], deaths, wrong)
    assert unlike(tmp_path / "one", tmp_path / "two")


def test_checkpoints_are_linked_and_each_run_keeps_its_own_manifest(tmp_path: Path) -> None:
    trained(tmp_path, population__exploit_every=4)
    (move, *_) = record_of(tmp_path).moves[0]
    for member in (move.member, move.source):
        run = run_of(tmp_path, member)
        for number in numbers(run):
            manifest = json.loads(run.read(f"checkpoints/{number:010d}/manifest.json"))
            assert manifest["run_id"] == directory.read_note(run)["run_id"]


def test_a_member_killed_between_the_two_events_of_a_copy_waits_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained(tmp_path, population__exploit_every=4)
    source, target = run_of(tmp_path, 0), run_of(tmp_path, 1)

    def killed(storage: LocalStorage, event: str, **details: object) -> None:
        if event == "interrupted":
            raise KeyboardInterrupt
        directory.tell_event(storage, event, **details)

    before = len(list(directory.events(target, "interrupted")))
    with monkeypatch.context() as patch:
        patch.setattr(forks, "tell_event", killed)
        with pytest.raises(KeyboardInterrupt):
            forks.take_over(source, target, "exploited", generation=9)
    forks.take_over(source, target, "exploited", generation=9)
    ending = directory.last_ending(target)
    assert ending is not None
    assert ending["event"] == "interrupted"
    assert sum(one["generation"] == 9 for one in directory.events(target, "exploited")) == 1
    forks.take_over(source, target, "exploited", generation=9)
    assert len(list(directory.events(target, "interrupted"))) == before + 1


def test_a_copy_keeps_the_tags_and_files_of_the_user_and_is_a_run_of_its_own_for_services(
    tmp_path: Path,
) -> None:
    trained(tmp_path)
    source, target = run_of(tmp_path, 0), run_of(tmp_path, 1)
    before = directory.read_note(target)["run_id"]
    for storage, word in ((source, "theirs"), (target, "own")):
        storage.write("notes.txt", word.encode())
        storage.write("tags.json", f'["{word}"]'.encode())
    forks.take_over(source, target, "exploited", generation=9)
    assert [target.read("notes.txt"), target.read("tags.json")] == [b"own", b'["own"]']
    assert directory.read_note(target)["run_id"] not in (
        before,
        directory.read_note(source)["run_id"],
    )
