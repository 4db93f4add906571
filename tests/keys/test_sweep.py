"""What each key of a sweep's file, of its samplers, pruners and engines does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.config.migrations import VERSION
from ludus.config.registry import find
from ludus.core.errors import ConfigError, LudusError
from ludus.sweep import Point, SweepConfig, Sweeper, SweepResult
from ludus.sweep.config import given_sweep
from ludus.sweep.curve import MetricCurve
from ludus.sweep.pruner import Past
from tests.keys.table import changes, shown_elsewhere
from tests.sweep.small import (
    ASHA,
    LOCAL,
    RAY,
    SAMPLERS,
    among,
    batches,
    lend_hill,
    sweep_data,
    swept,
)

SEARCH = "sweep/test_search.py"
shown_elsewhere(f"{SEARCH}::test_another_seed_of_the_sweep_asks_for_other_points", "sweep", "seed")
shown_elsewhere(
    f"{SEARCH}::test_each_trial_runs_every_seed_and_its_score_is_their_mean_with_an_interval",
    "sweep", "seeds",
)  # fmt: skip
shown_elsewhere(
    f"{SEARCH}::test_the_best_is_by_the_direction_of_the_metric", "sweep", "metric.direction"
)
shown_elsewhere(
    f"{SEARCH}::test_hours_are_a_budget_and_count_on_where_the_sweep_was_left",
    "sweep", "budget.max_hours",
)  # fmt: skip
shown_elsewhere(f"{SEARCH}::test_steps_of_all_runs_are_a_budget", "sweep", "budget.max_opt_steps")
shown_elsewhere(
    f"{SEARCH}::test_a_trial_that_is_worse_on_its_first_seeds_does_not_run_the_others",
    "sweep", "seed_pruner",
)  # fmt: skip
shown_elsewhere(
    "sweep/test_workers.py::test_a_trial_that_hangs_is_killed_and_the_next_one_runs",
    "sweep_engine local", "hang_seconds",
)  # fmt: skip
shown_elsewhere(
    "sweep/test_workers.py::test_a_worker_may_take_only_so_much_memory",
    "sweep_engine local", "memory_gb",
)  # fmt: skip
shown_elsewhere(
    "sweep/test_ray_faults.py::test_a_run_that_dies_hangs_or_takes_all_memory_has_failed_as_on_the_engine_local",
    "sweep_engine ray", "hang_seconds", "memory_gb",
)  # fmt: skip
shown_elsewhere(
    "sweep/test_joined_cluster.py::test_a_sweep_joins_and_leaves_the_cluster_and_needs_no_room_for_all_workers",
    "sweep_engine ray", "address",
)  # fmt: skip
shown_elsewhere(
    "sweep/test_joined_cluster.py::test_a_worker_has_the_gpus_that_it_asks_for",
    "sweep_engine ray", "gpus_per_worker",
)  # fmt: skip
shown_elsewhere(
    "sweep/test_pruners.py::test_asha_lets_the_best_third_go_on_at_each_rung",
    "pruner asha", "reduction",
)  # fmt: skip
shown_elsewhere(
    "sweep/test_pruners.py::test_hyperband_compares_within_a_bracket_and_stricter_ones_have_more_trials",
    "pruner hyperband", "first_rung", "last_rung", "reduction",
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    lend_hill(monkeypatch)


def config(folder: Path, **changed: Any) -> SweepConfig:
    return given_sweep(sweep_data(folder, **changed))


def run_at(folder: Path, **changed: Any) -> SweepResult:
    folder.mkdir()
    return swept(folder, **changed)


@changes("sweep", "version")
def test_a_file_of_another_version_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"version {VERSION + 1} is newer"):
        config(tmp_path, version=VERSION + 1)


@changes("sweep", "kind")
def test_a_file_of_another_kind_is_no_sweep(kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="'kind' is 'edge', and a sweep's is one of: population, sweep"
    ):
        config(tmp_path, kind="edge")


@changes("sweep", "name")
def test_a_sweep_is_in_the_folder_of_its_name(kind: str, tmp_path: Path) -> None:
    assert Path(swept(tmp_path, name="other", budget__max_trials=1).sweep_dir).name == "other"


@changes("sweep", "base", "fixed")
def test_runs_have_the_keys_of_the_base_and_the_fixed_ones(kind: str, tmp_path: Path) -> None:
    result = swept(tmp_path, fixed={"noise": 0.25}, budget__max_trials=1)
    assert result.best_config is not None
    assert (result.best_config.kind, result.best_config.noise) == ("hill", 0.25)
    other = sweep_data(tmp_path, base="dqn", fixed={}, space={"gamma": among(0.9, 0.99)})
    assert "train a dqn" in Sweeper(other).plan()


@changes("sweep", "space")
def test_the_keys_of_the_space_vary(kind: str, tmp_path: Path) -> None:
    result = swept(tmp_path, space={"size": among(3, 4)}, budget__max_trials=6)
    assert {trial.point["size"] for trial in result.trials} == {3, 4}


@changes("sweep", "metric.name", "metric.take")
def test_a_run_has_the_best_or_the_last_value_of_the_metric(kind: str, tmp_path: Path) -> None:
    metric = {"name": "hill/luck", "direction": "max", "take": "last", "confidence": 0.9}
    last = run_at(tmp_path / "last", metric=metric, budget__max_trials=1)
    best = run_at(tmp_path / "best", metric={**metric, "take": "best"}, budget__max_trials=1)
    assert last.best is not None
    assert best.best is not None
    values = [last.best.values[0], best.best.values[0]]
    assert values[0] < values[1]


@changes("sweep", "metric.confidence")
def test_more_confidence_is_a_wider_interval(kind: str, tmp_path: Path) -> None:
    halves = []
    for level in (0.8, 0.99):
        common: dict[str, Any] = {"seeds": "0-2", "budget__max_trials": 1}
        result = run_at(tmp_path / str(level), metric__confidence=level, **common)
        assert result.best is not None
        assert result.best.score is not None
        halves.append(result.best.score.half)
    assert halves[0] < halves[1]


@changes("sweep", "sampler")
def test_the_sampler_that_is_named_chooses_the_points(kind: str, tmp_path: Path) -> None:
    space = {"x": among(0.1, 0.2)}
    result = swept(tmp_path, sampler=SAMPLERS["grid"], space=space, budget__max_trials=9)
    assert [trial.point["x"] for trial in result.trials] == [0.1, 0.2]


@changes("sweep", "pruner")
def test_the_pruner_that_is_named_ends_runs(kind: str, tmp_path: Path) -> None:
    common = {"sampler": SAMPLERS["grid"], "space": {"x": among(0.3, 0.9)}}
    ends = [
        run_at(tmp_path / str(one["kind"]), pruner=one, **common).trials[1].state
        for one in ({"kind": "none"}, ASHA)
    ]
    assert ends == ["complete", "pruned"]


@changes("sweep", "budget.max_trials", "budget.max_env_steps")
def test_a_limit_ends_the_search(kind: str, tmp_path: Path) -> None:
    assert len(swept(tmp_path, budget__max_trials=3).trials) == 3
    # No run of the hill takes env steps, so they would never be used up.
    with pytest.raises(LudusError, match="a limit of env_steps, which these runs do not count"):
        swept(tmp_path, budget__max_trials=4, budget__max_env_steps=1)


@changes("sweep", "deterministic", "batch_size")
def test_trials_of_a_batch_do_not_know_each_other(kind: str, tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "sampler": {"kind": "tpe", "startup_trials": 1, "multivariate": True}, "budget__max_trials": 6,
    }  # fmt: skip
    first = run_at(tmp_path / "one", **common)
    two, three = (run_at(tmp_path / str(n), **batches(batch_size=n), **common) for n in (2, 3))
    assert {trial.batch for trial in two.trials} == {0, 2, 4}
    assert {trial.batch for trial in three.trials} == {0, 3}
    points = [[trial.point for trial in one.trials] for one in (first, two, three)]
    assert points[0][0] == points[1][0] == points[2][0]
    assert points[1] != points[2]


@changes("sweep", "engine")
def test_the_engine_that_is_named_executes_the_runs(kind: str, tmp_path: Path) -> None:
    made = Sweeper(sweep_data(tmp_path, engine=LOCAL))._engine(None)
    assert type(made) is find("sweep_engine", "local")


@changes("sampler random, sampler grid, sampler tpe, sampler cmaes, sampler gp", "kind")
def test_a_sampler_is_found_by_its_kind(kind: str) -> None:
    assert find(*kind.split()).kind == kind.split()[1]


@changes("pruner none, pruner asha, pruner median, pruner hyperband", "kind")
def test_a_pruner_is_found_by_its_kind(kind: str) -> None:
    assert find(*kind.split()).kind == kind.split()[1]


@changes(
    "seed_pruner none, seed_pruner wilcoxon, sweep_engine local, sweep_engine inline, sweep_engine ray",
    "kind",
)
def test_others_are_found_by_their_kind(kind: str) -> None:
    assert find(*kind.split()).kind == kind.split()[1]


@changes("sampler tpe, sampler cmaes, sampler gp", "startup_trials")
def test_so_many_points_are_drawn_at_random_first(kind: str, tmp_path: Path) -> None:
    own = SAMPLERS[kind.split()[1]]
    points = []
    for number, startup in enumerate((2, 5)):
        sampler = {**own, "startup_trials": startup}
        found = run_at(tmp_path / str(number), sampler=sampler, budget__max_trials=5)
        points.append([trial.point for trial in found.trials])
    assert points[0][:2] == points[1][:2]
    assert points[0] != points[1]


@changes("sampler tpe", "multivariate")
def test_keys_are_modelled_together_or_each_alone(kind: str, tmp_path: Path) -> None:
    points = []
    for together in (True, False):
        sampler = {"kind": "tpe", "startup_trials": 2, "multivariate": together}
        found = run_at(tmp_path / str(together), sampler=sampler, budget__max_trials=5)
        points.append([trial.point for trial in found.trials])
    assert points[0][:2] == points[1][:2]
    assert points[0] != points[1]


def judge(kind: str, **section: Any) -> Any:
    cls = find("pruner", kind)
    return cls(cls.Config(kind=kind, **section), mode="max", seed=0)


def curve(*points: tuple[dict[str, int], float]) -> MetricCurve:
    return MetricCurve([Point(counters, value) for counters, value in points])


@changes("pruner asha, pruner median, pruner hyperband", "counter")
def test_runs_are_compared_at_the_same_value_of_the_counter(kind: str) -> None:
    options: dict[str, Any] = {
        "asha": {"first_rung": 5, "reduction": 2}, "median": {"warmup": 5, "startup_trials": 1},
        "hyperband": {"first_rung": 5, "last_rung": 6, "reduction": 2},
    }[kind.split()[1]]  # fmt: skip
    own = curve(({"opt_steps": 5, "epoch": 1}, 1.0))
    others = [Past(number, curve(({"opt_steps": 5, "epoch": 1}, 2.0)), True) for number in range(9)]
    by_steps = judge(kind.split()[1], counter="opt_steps", **options)
    by_epochs = judge(kind.split()[1], counter="epoch", **options)
    assert by_steps.reason(99, own, others) is not None
    assert by_epochs.reason(99, own, others) is None


@changes("pruner asha", "first_rung")
def test_nothing_is_compared_before_the_first_rung(kind: str) -> None:
    others = [Past(0, curve(({"opt_steps": 9}, 9.0)), True)]
    own = curve(({"opt_steps": 4}, 1.0))
    early, late = (judge("asha", counter="opt_steps", first_rung=n, reduction=2) for n in (4, 5))
    assert early.reason(1, own, others) is not None
    assert late.reason(1, own, others) is None


@changes("pruner median", "warmup", "startup_trials")
def test_the_median_rule_waits_for_steps_and_for_whole_trials(kind: str) -> None:
    others = [Past(number, curve(({"opt_steps": 2}, 9.0)), True) for number in range(3)]
    own = curve(({"opt_steps": 2}, 1.0))

    def is_ended(warmup: int, startup_trials: int) -> bool:
        made = judge("median", counter="opt_steps", warmup=warmup, startup_trials=startup_trials)
        return made.reason(9, own, others) is not None

    assert (is_ended(2, 3), is_ended(3, 3), is_ended(2, 4)) == (True, False, False)


@changes("seed_pruner wilcoxon", "p_threshold", "min_seeds")
def test_a_trial_is_ended_below_the_threshold_and_after_enough_seeds(kind: str) -> None:
    cls = find("seed_pruner", "wilcoxon")
    best = {seed: 2.0 + seed for seed in range(6)}
    own = {seed: value - 1 - 0.1 * seed for seed, value in list(best.items())[:4]}

    def is_ended(p_threshold: float, min_seeds: int) -> bool:
        section = cls.Config(kind="wilcoxon", p_threshold=p_threshold, min_seeds=min_seeds)
        return cls(section, mode="max").reason(own, best) is not None

    # The p value of four of four is 1/16.
    assert (is_ended(0.1, 4), is_ended(0.05, 4), is_ended(0.1, 5)) == (True, False, False)


@changes("sweep_engine local, sweep_engine ray", "workers")
def test_so_many_runs_are_executed_at_once(kind: str) -> None:
    cls, section = find(*kind.split()), LOCAL if "local" in kind else RAY
    capacities = [cls(cls.Config(**{**section, "workers": n})).capacity for n in (1, 3)]
    assert capacities == [1, 3]
