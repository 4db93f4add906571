"""What each key of a population's file does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.config.migrations import VERSION
from ludus.config.registry import find
from ludus.core.errors import ConfigError
from ludus.store.local import LocalStorage
from ludus.sweep import Sweeper, SweepResult
from ludus.sweep.config import given_sweep
from ludus.sweep.population.record import PopulationRecord
from tests.keys.table import changes, shown_elsewhere
from tests.sweep.small import LOCAL, among, lend_hill, population_data

TESTS = "sweep/test_population.py"
shown_elsewhere(
    f"{TESTS}::test_a_quantile_is_replaced_and_so_is_whatever_has_no_value",
    "population", "population.quantile", "metric.direction",
)  # fmt: skip
shown_elsewhere(
    f"{TESTS}::test_a_value_is_perturbed_within_its_limits", "population", "explore.perturb"
)
shown_elsewhere(
    f"{TESTS}::test_a_value_is_resampled_with_its_probability",
    "population", "explore.resample_probability",
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    lend_hill(monkeypatch)


def trained(folder: Path, **changed: Any) -> SweepResult:
    folder.mkdir(exist_ok=True)
    data = population_data(folder, **{"population__size": 2, "population__quantile": 0.5} | changed)
    return Sweeper(data).sweep(root=folder / "sweeps", show_on="none")


def record_of(result: SweepResult) -> PopulationRecord:
    return PopulationRecord(LocalStorage(result.sweep_dir))


@changes("population", "version", "kind")
def test_a_file_of_another_version_or_kind_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"version {VERSION + 1} is newer"):
        given_sweep(population_data(tmp_path, version=VERSION + 1))
    with pytest.raises(ConfigError, match="'population' is not a key here"):
        given_sweep(population_data(tmp_path, kind="sweep"))


@changes("population", "name", "base", "fixed", "population.size")
def test_so_many_runs_have_the_keys_of_the_base_and_the_fixed_ones(
    kind: str, tmp_path: Path
) -> None:
    result = trained(tmp_path, name="other", fixed={"noise": 0.25}, population__size=3)
    assert Path(result.sweep_dir).name == "other"
    assert [trial.number for trial in result.trials] == [0, 1, 2]
    assert result.best_config is not None
    assert (result.best_config.kind, result.best_config.noise) == ("hill", 0.25)


@changes("population", "seed", "space")
def test_members_begin_with_values_of_the_space_that_the_seed_draws(
    kind: str, tmp_path: Path
) -> None:
    space = {"size": among(3, 4, 5, 6)}
    points = []
    for seed in (0, 1):
        found = record_of(trained(tmp_path / str(seed), seed=seed, space=space, population__size=6))
        points.append([member.point["size"] for member in found.members.values()])
    assert {*points[0], *points[1]} == {3, 4, 5, 6}
    assert points[0] != points[1]


@changes("population", "seeds")
def test_members_begin_with_the_seeds_in_turn(kind: str, tmp_path: Path) -> None:
    found = record_of(trained(tmp_path, seeds=[5, 7], population__size=3))
    assert [member.seed for member in found.members.values()] == [5, 7, 5]


@changes("population", "metric.name", "metric.take")
def test_members_are_compared_by_the_best_or_the_last_value_of_the_metric(
    kind: str, tmp_path: Path
) -> None:
    metric = {"name": "hill/luck", "direction": "max", "confidence": 0.9}
    found = []
    for take in ("last", "best"):
        record = record_of(trained(tmp_path / take, metric={**metric, "take": take}))
        found.append([(end.value, [y for _, y in end.points]) for end in record.ends[0].values()])
    assert [value for value, _ in found[0]] == [ys[-1] for _, ys in found[0]]
    assert [value for value, _ in found[1]] == [max(ys) for _, ys in found[1]]
    assert found[0] != found[1]


@changes("population", "metric.confidence")
def test_the_best_with_other_seeds_has_an_interval_of_this_confidence(
    kind: str, tmp_path: Path
) -> None:
    halves = []
    for level in (0.8, 0.99):
        folder = tmp_path / str(level)
        trained(folder, metric__confidence=level)
        data = population_data(
            folder, metric__confidence=level, population__size=2, population__quantile=0.5
        )
        found = Sweeper(data).train_best([8, 9], root=folder / "sweeps", show_on="none")
        assert found.score is not None
        halves.append(found.score.half)
    assert halves[0] < halves[1]


@changes("population", "population.counter", "population.exploit_every")
def test_a_generation_is_so_long_by_its_counter(kind: str, tmp_path: Path) -> None:
    short, long = (
        record_of(trained(tmp_path / str(n), population__exploit_every=n)) for n in (2, 4)
    )
    assert (len(short.ends), len(long.ends)) == (3, 2)
    assert short.ends[0][0].points[-1][0] == 2
    assert long.ends[0][0].points[-1][0] == 4
    with pytest.raises(ConfigError, match="is epoch, which these runs do not count"):
        trained(tmp_path / "epoch", population__counter="epoch")


@changes("population", "engine")
def test_the_engine_that_is_named_executes_the_runs(kind: str, tmp_path: Path) -> None:
    made = Sweeper(population_data(tmp_path, engine=LOCAL))._engine(None)
    assert type(made) is find("sweep_engine", "local")
