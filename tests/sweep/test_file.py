"""A mistake in the file of a sweep is one sentence, before anything is run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import ludus
from ludus.config.overrides import kinds_first
from ludus.config.registry import example_path
from ludus.core.errors import ConfigError, LudusError, RunError, StorageError
from ludus.sweep import Sweeper
from ludus.sweep.base import Base
from ludus.sweep.config import given_sweep
from tests.sweep.small import (
    SAMPLERS,
    among,
    batches,
    sweep_data,
    swept,
    within,
    write_base,
)


def refusal(folder: Path, **changed: Any) -> str:
    """Return the sentence by which a sweep is refused; nothing is written."""
    with pytest.raises(ConfigError) as caught:
        Sweeper(sweep_data(folder, **changed)).sweep(root=folder / "sweeps", show_on="none")
    assert not (folder / "sweeps").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


STEEP = {"kind": "steep", "grade": 0.5}
PLAIN = {"kind": "plain", "grade": 0.0}
GRADE = {**within(0.0, 1.0), "when": {"slope.kind": ["steep"]}}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"space": {}}, "'space' is empty, so there is nothing to search"),
        ({"space": {"z": within(0, 1)}}, "'space': 'z' is not a key of this config."),
        ({"space": {"slope.grad": within(0, 1)}}, "Did you mean 'slope.grade'?"),
        ({"space": {"x": within(1, 1)}}, "'low' is 1 and 'high' 1; 'low' must be the smaller one"),
        (
            {"space": {"x": {"kind": "log_range", "low": 0.0, "high": 1.0, "when": None}}},
            "'low' is 0; a logarithm needs a number above 0",
        ),
        (
            {"space": {"size": {"kind": "int_range", "low": 1, "high": 8, "step": 3, "when": None}}},
            "'step' is 3, which does not lead from 1 to 8; try 'high' 7",
        ),
        ({"space": {"x": {**within(0, 1), "step": 0.3}}}, "try 'high' 0.9"),
        ({"space": {"x": among(1.0, 1.0)}}, "'values' holds 1.0 twice"),
        ({"space": {"x": among(1.0, {2.0})}}, "'values' holds what a config file cannot"),
        ({"space": {"x": within(-1e308, 1e308)}}, "further apart than any number; bring them nearer"),
        ({"space": {"x": {**within(0, 1), "step": 1e-15}}}, "more than 1000000 values from 0 to 1"),
        (
            {"space": {"size": {"kind": "int_range", "low": 0, "high": 10**30, "step": 1, "when": None}}},
            "'space.size.high' must be less than or equal to 9007199254740992",
        ),
        ({"space": {"size": within(1, 8)}}, "'size' the value 1.0, which is impossible: 'size' must be"),
        ({"space": {"mood": among("well", "merry")}}, "'mood' the value 'merry', which is impossible"),
        (
            {"space": {"slope.grade": {"kind": "range", "low": 0.0, "high": 1.0, "step": None}}},
            "'space.slope.grade.when' is missing; it is: Keys that are chosen before",
        ),
        (
            {"space": {"slope.grade": {**within(0, 1), "lo": 0.0}}},
            "'space.slope.grade.lo' is not a key here. Did you mean 'low'?",
        ),
        (
            {"space": {"slope.grade": {**within(0, 1), "kind": "loguniform"}}},
            "'space.slope.grade.kind' is 'loguniform'. Known: choice, int_log_range",
        ),
        (
            {"space": {"slope.grade": [0.0, 1.0]}},
            "'space.slope.grade' must be a section with a 'kind', one of: choice, range",
        ),
        ({"fixed": {"x": 0.5}}, "'x' is both in 'space' and in 'fixed'; remove one of them"),
        (
            {"fixed": {"slope": PLAIN}, "space": {"slope.grade": within(0, 1)}},
            "'slope.grade' varies and 'slope' is fixed",
        ),
        ({"fixed": {"xx": 0.5}}, "'fixed': 'xx' is not a key of this config."),
        ({"fixed": {"x": "high"}}, "'x' must be a number"),
        (
            {"fixed": {"settings.display": "plain"}},
            "'fixed' has 'settings.display' plain, and a run of a sweep shows nothing itself; remove it",
        ),
        ({"fixed": {"seed": 3}}, "'fixed' has 'seed': the seeds of the runs are 'seeds'"),
        ({"space": {"seed": among(1, 2)}}, "'space' has 'seed': the seeds of the runs are 'seeds'"),
        ({"space": {"settings.device": among("cpu", "cuda")}}, "settings do not affect the result"),
        (
            {"space": {"slope": among(PLAIN, STEEP), "slope.grade": within(0, 1)}},
            "'slope.grade' varies, and so does 'slope', which holds it; say for which of its values",
        ),
        (
            {"space": {"x": {**within(0, 1), "when": {"y": [1]}}}},
            "'when' of 'x' names 'y', which does not vary.",
        ),
        (
            {"space": {"y": within(0, 1), "x": {**within(0, 1), "when": {"y": [1]}}}},
            "a condition is on a key of kind choice",
        ),
        (
            {"space": {"y": among(1.0, 2.0), "x": {**within(0, 1), "when": {"y": [3.0]}}}},
            "'when' of 'x' needs 'y' to be 3.0, which is none of its values",
        ),
        (
            {"space": {"x": {**among(0.1, 0.2), "when": {"y": [0.1]}},
                       "y": {**among(0.1, 0.2), "when": {"x": [0.1]}}}},
            "the conditions of 'x' and 'y' name each other",
        ),
        (
            {"space": {"slope": among(PLAIN, STEEP),
                       "slope.angle": {**within(0, 1), "when": {"slope.kind": ["steep"]}}}},
            "'slope.angle' is no key of {'kind': 'steep', 'grade': 0.5}, a value of 'slope'",
        ),
        ({"sampler": SAMPLERS["grid"]}, "'sampler.kind' is grid, and 'x' may be any number"),
        (
            {"sampler": SAMPLERS["cmaes"], "space": {"x": among(0.1, 0.2)}},
            "no key of the space is a number that always varies",
        ),
        ({"seeds": []}, "'seeds' is empty; give one seed at least"),
        ({"seeds": "4-0"}, "'seeds' runs backwards from 4 to 0; write 0-4"),
        ({"seeds": [1, 1]}, "'seeds' names 1 twice"),
        ({"seeds": "some"}, "'seeds' is 'some'; give a range such as 0-4"),
        ({"seeds": [-1]}, "'seeds.0' must be greater than or equal to 0"),
        ({"metric__name": "hill/height"}, "set 'direction' to min or max"),
        ({"budget__max_trials": None}, "every limit is null, so the sweep would never end"),
        ({"batch_size": 4}, "only a deterministic sweep has batches; set it to null"),
        ({**batches(), "batch_size": None}, "a deterministic sweep has batches"),
        ({**batches(), "budget__max_hours": 1.0}, "a deterministic sweep cannot end by the clock"),
        ({"base": "pppo"}, "'base': no trainer kind or file is named 'pppo'. Did you mean 'ppo'?"),
        ({"base": "missing.yaml"}, "missing.yaml: no such file"),
        ({"base": "sweep"}, "a file of kind sweep is not for a trainer"),
        ({"pruner": {"kind": "ashes"}}, "Did you mean 'asha'?"),
        (
            {"pruner": {"kind": "asha", "counter": "steps", "first_rung": 1, "reduction": 2}},
            "'pruner.counter' is 'steps': no counter is named 'steps'. Did you mean 'opt_steps'?",
        ),
        ({"engine": {"kind": "cluster"}}, "no sweep_engine kind is named 'cluster'"),
        ({"budget__max_trials": 0}, "'budget.max_trials' must be greater than or equal to 1"),
        ({"name": "../x"}, "'name' must match pattern "),
        ({"space": {"x": 3}}, "'space.x' must be a section with a 'kind', one of: choice, range, log_range"),
        ({"space": {"x": among()}}, "'space.x.values' must have at least 1 item"),
    ],
)  # fmt: skip
def test_it_is_told_in_one_sentence_and_nothing_is_written(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    assert told in refusal(tmp_path, **changed)


def test_a_section_may_be_chosen_and_a_key_of_it_varied_for_some_of_its_values(
    tmp_path: Path,
) -> None:
    space = {"slope.grade": GRADE, "slope": among(PLAIN, STEEP), "size": among(4, 8)}
    result = swept(tmp_path, space=space, budget__max_trials=12)
    kinds = set()
    for trial in result.trials:
        kind = trial.point["slope"]["kind"]
        kinds.add(kind)
        assert ("slope.grade" in trial.point) == (kind == "steep")
    assert kinds == {"plain", "steep"}
    best = result.best_config
    assert best is not None
    assert best.slope.grade == result.best.point.get("slope.grade", 0.0)  # type: ignore[union-attr]


def test_the_space_and_the_engine_that_the_page_shows_are_right(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text()
    shown, engine = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    found = given_sweep(sweep_data(tmp_path, **yaml.safe_load(engine)))
    assert found.engine.model_dump()["kind"] == "ray"
    data = sweep_data(tmp_path, base="supervised", **yaml.safe_load(shown))
    data["metric"] = {**data["metric"], "name": "validation/epoch_loss"}
    plan = Sweeper(data).plan()
    assert (
        "optimizer.momentum: range of low 0.5, high 0.99, when {'optimizer.kind': ['sgd']}" in plan
    )


def test_a_grid_has_conditional_keys_only_where_they_vary(tmp_path: Path) -> None:
    grade = {**among(0.2, 0.4), "when": {"slope.kind": ["steep"]}}
    space = {"slope": among(PLAIN, STEEP), "slope.grade": grade}
    result = swept(tmp_path, space=space, sampler=SAMPLERS["grid"], budget__max_trials=9)
    found = [(t.point["slope"]["kind"], t.point.get("slope.grade")) for t in result.trials]
    assert found == [("plain", None), ("steep", 0.2), ("steep", 0.4)]


def test_keys_are_found_by_their_last_word_as_on_the_command_line(tmp_path: Path) -> None:
    result = swept(tmp_path, space={"grade": within(0.0, 1.0)}, fixed={"noise": 0.0})
    assert list(result.trials[0].point) == ["slope.grade"]


RATE = {"kind": "log_range", "low": 1e-3, "high": 0.05, "when": None}


def network(folder: Path, **changed: Any) -> Base:
    """Return the base of a sweep over a shipped config, whose optimizer is adamw."""
    return Base(given_sweep(sweep_data(folder, base="supervised", **changed)))


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_value_that_is_drawn_stays_whatever_kind_is_drawn_after_it(
    tmp_path: Path, kind: str
) -> None:
    space = {"optimizer.learning_rate": RATE, "optimizer.kind": among("adamw", "sgd")}
    base = network(tmp_path, space=space)
    point = {"optimizer.learning_rate": 0.0054, "optimizer.kind": kind}
    for config in (base.config_of(point, 0, "run"), base.best_config(point)):
        assert (config["optimizer.kind"], config["optimizer.learning_rate"]) == (kind, 0.0054)


def test_a_fixed_value_stays_whatever_kind_is_fixed_or_drawn(tmp_path: Path) -> None:
    rate = {"optimizer.learning_rate": 0.05}
    fixed = network(
        tmp_path, fixed={**rate, "optimizer.kind": "sgd"}, space={"batch_size": among(8)}
    )
    drawn = network(tmp_path, fixed=rate, space={"optimizer.kind": among("adamw", "sgd")})
    for config in (fixed.config, drawn.config_of({"optimizer.kind": "sgd"}, 0, "run")):
        assert (config["optimizer.kind"], config["optimizer.learning_rate"]) == ("sgd", 0.05)
    told = refusal(
        tmp_path, base="supervised", fixed={"optimizer.kind": "sgd", "optimizer.momentum": 0.8},
        space={"optimizer.kind": among("adamw")},
    )  # fmt: skip
    assert "'optimizer.kind' is both in 'space' and in 'fixed'" in told
    told = refusal(
        tmp_path, base="supervised", fixed={"optimizer.beta1": 0.8},
        space={"optimizer.kind": among("adamw", "sgd")},
    )  # fmt: skip
    assert (
        "gives 'optimizer.kind' the value 'sgd', which is impossible: 'optimizer.beta1' is not a key"
        in told
    )


def test_a_run_has_one_thread_or_as_many_as_are_given(tmp_path: Path) -> None:
    space = {"batch_size": among(8)}
    bases = [network(tmp_path, fixed={"settings.threads": one}, space=space) for one in (2, None)]
    configs = [base.config_of({"batch_size": 8}, 0, "run") for base in bases]
    assert [config.settings.threads for config in configs] == [2, 1]


def test_a_section_a_kind_in_it_and_a_key_in_it_are_set_from_the_outside_in() -> None:
    given = ["m.inner.kind", "m.inner.size", "rate", "m.inner", "m.kind", "steps", "m"]
    assert kinds_first(given, sections_first=True) == [
        "m", "m.kind", "m.inner", "m.inner.kind", "m.inner.size", "rate", "steps",
    ]  # fmt: skip
    # Where a caller gave them in an order, the last one counts.
    assert kinds_first(given) == [
        "m.kind", "m.inner.kind", "m.inner.size", "rate", "m.inner", "steps", "m",
    ]  # fmt: skip


def test_a_base_that_has_changed_since_the_sweep_began_is_refused(tmp_path: Path) -> None:
    data = sweep_data(tmp_path, budget__max_trials=1)
    root = tmp_path / "sweeps"
    first = Sweeper(data).sweep(root=root, show_on="none")
    write_base(tmp_path, noise=2.0)
    with pytest.raises(
        RunError, match=r"its base '.*hill.yaml', with 'fixed', has changed since the sweep began:"
        r" 'noise' was 1.0 and is 2.0; restore it, or give the sweep another name"
    ):  # fmt: skip
        Sweeper(data).sweep(root=root, show_on="none")
    write_base(tmp_path)
    assert Sweeper(data).sweep(root=root, show_on="none").table() == first.table()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 9}, "'seed' was 1 and is 9"),
        (
            {"space": {"x": within(0.0, 2.0), "y": within(0.0, 1.0)}},
            "'space.x.high' was 1.0 and is 2.0",
        ),
        ({"space": {"x": within(0.0, 1.0)}}, "'space.y' was"),
        ({"seeds": [0, 1]}, r"'seeds' was \[0\] and is \[0, 1\]"),
    ],
)
def test_a_file_that_has_changed_since_the_sweep_began_is_refused(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    swept(tmp_path, budget__max_trials=1)
    with pytest.raises(RunError, match=told):
        swept(tmp_path, budget__max_trials=1, **changed)


def test_budget_and_engine_may_change_while_a_sweep_goes_on(tmp_path: Path) -> None:
    swept(tmp_path, budget__max_trials=1)
    assert len(swept(tmp_path, budget__max_trials=2, budget__max_opt_steps=10**6).trials) == 2


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "sweeps/climb"
    place.mkdir(parents=True)
    (place / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"is not a sweep, yet holds thesis.tex"):
        swept(tmp_path)
    assert [path.name for path in place.iterdir()] == ["thesis.tex"]


def test_a_root_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LudusError, match="the root memory://x is no directory"):
        Sweeper(sweep_data(tmp_path)).sweep(root="memory://x", show_on="none")


def test_a_deterministic_sweep_goes_on_with_the_optuna_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import optuna

    swept(tmp_path, **batches(), budget__max_trials=1)
    monkeypatch.setattr(optuna, "__version__", "99.0")
    with pytest.raises(LudusError, match=r"began with Optuna 5\..*, and this is 99.0"):
        swept(tmp_path, **batches(), budget__max_trials=1)


def test_without_optuna_a_sweep_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from ludus.sweep.libraries import load_optuna

    load_optuna.cache_clear()
    monkeypatch.setitem(sys.modules, "optuna", None)
    try:
        with pytest.raises(ConfigError, match=r"a sweep needs optuna; .* 'ludus\[sweep\]'"):
            swept(tmp_path)
    finally:
        load_optuna.cache_clear()


def test_a_damaged_record_is_told_and_never_begun_afresh(tmp_path: Path) -> None:
    swept(tmp_path, budget__max_trials=1)
    path = tmp_path / "sweeps/climb/journals/sweep.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    with pytest.raises(LudusError, match="is damaged"):
        swept(tmp_path, budget__max_trials=1)


@pytest.mark.parametrize("point", [{"z": 0.5}, {"x": 0.5, "y": 7.0}])
def test_a_record_of_points_outside_the_space_is_damaged(
    tmp_path: Path, point: dict[str, float]
) -> None:
    data = sweep_data(tmp_path, space={"x": within(0.0, 1.0), "y": among(0.1, 0.2)})
    Sweeper(data).sweep(1, root=tmp_path / "sweeps", show_on="none")
    record = tmp_path / "sweeps" / "climb" / "journals" / "sweep.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    next(line for line in lines if line["key"] == "ask/0000")["record"]["point"] = point
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(StorageError, match=r"sweep.jsonl is damaged .*; restore it from a backup"):
        Sweeper(data).sweep(2, root=tmp_path / "sweeps", show_on="none")


def test_a_record_without_the_file_that_it_belongs_to_is_not_gone_on_with(tmp_path: Path) -> None:
    data = sweep_data(tmp_path)
    Sweeper(data).sweep(1, root=tmp_path, show_on="none")
    (tmp_path / "climb" / "sweep.yaml").unlink()
    with pytest.raises(
        RunError, match=r"sweep.yaml is missing, .*; restore it, or begin the sweep"
    ):
        Sweeper(data).sweep(2, root=tmp_path, show_on="none")


def test_a_record_with_an_unknown_state_is_damaged(tmp_path: Path) -> None:
    data = sweep_data(tmp_path)
    Sweeper(data).sweep(1, root=tmp_path, show_on="none")
    record = tmp_path / "climb" / "journals" / "sweep.jsonl"
    record.write_text(record.read_text().replace('"state": "complete"', '"state": "zzz"'))
    with pytest.raises(StorageError, match="'zzz' is no state of a trial"):
        Sweeper(data).sweep(2, root=tmp_path, show_on="none")


def test_the_shipped_file_is_whole_and_a_short_sweep_of_it_finds_a_config(tmp_path: Path) -> None:
    sweeper = ludus.Sweeper(
        example_path("sweep"),
        ["budget.max_trials=2", "seeds=[0]", "engine={kind: inline}", "pruner={kind: none}"],
    )
    fixed = {**sweeper.config.fixed, "max_epochs": 1, "learning_rate_schedule.warmup_steps": 0}
    result = ludus.Sweeper({**sweeper.config.model_dump(), "fixed": fixed}).sweep(
        root=tmp_path, show_on="none"
    )
    assert [trial.state for trial in result.trials] == ["complete", "complete"]
