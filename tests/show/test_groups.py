"""Runs whose configs differ only in the seed are a group, and a group has a name that tells it apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import RunError
from ludus.show.report.files import ReportedRun
from ludus.show.report.groups import differing_keys, flat_config, grouped, repeated, shown_value
from ludus.store.groups import free_name, member_name, runs_called
from tests.show.test_report import make_run

PPO = {"kind": "ppo", "optimizer": {"kind": "adam", "learning_rate": 0.001}}


def a_run(name: str, config: dict[str, Any] | None = None, **about: Any) -> ReportedRun:
    note = {"name": name, "kind": "ppo", **about}
    return ReportedRun(f"runs/{name}", note if config is None else {**note, "config": config})


def named(*runs: ReportedRun) -> dict[str, list[int]]:
    return {one.name: list(one.runs) for one in grouped(runs)}


def test_runs_that_differ_in_the_seed_and_the_experiments_name_are_one_group() -> None:
    runs = [
        a_run(f"ppo-{seed}", {**PPO, "seed": seed, "experiment": f"try {seed}"})
        for seed in range(3)
    ]
    other = a_run("slow", {**PPO, "seed": 0, "gamma": 0.9})
    assert named(runs[0], other, *runs[1:]) == {"ppo": [0, 2, 3], "slow": [1]}


def test_the_group_that_run_json_names_keeps_runs_of_different_configs_together() -> None:
    one, two = a_run("a", {"gamma": 0.9}, group="mine"), a_run("b", {"gamma": 0.8}, group="mine")
    assert named(one, two) == {"mine": [0, 1]}


def test_a_run_without_a_group_joins_the_one_group_of_its_config() -> None:
    one, two = a_run("a", {**PPO, "seed": 0}, group="mine"), a_run("b", {**PPO, "seed": 1})
    assert named(two, one) == {"mine": [0, 1]}
    # With two groups of its config it is unknown which it belongs to.
    other = a_run("c", {**PPO, "seed": 2}, group="others")
    assert named(one, two, other) == {"a": [0], "b": [1], "c": [2]}


def test_groups_of_one_name_in_two_roots_are_two() -> None:
    runs = [
        a_run("a", {**PPO, "seed": 0}, group="mine"),
        a_run("b", {**PPO, "seed": 1}, group="mine"),
    ]
    elsewhere = ReportedRun("elsewhere/b", runs[1].about)
    assert [list(one.runs) for one in grouped([runs[0], elsewhere])] == [[0], [1]]


def test_runs_that_do_not_say_their_config_are_alone() -> None:
    assert named(a_run("a"), a_run("b")) == {"a": [0], "b": [1]}


@pytest.mark.parametrize(
    ("names", "stem"),
    [
        (("ppo", "ppo-2", "ppo-3"), "ppo"),
        (("ppo-s0", "ppo-s1"), "ppo"),
        (("ppo_seed1", "ppo_seed12"), "ppo"),
        (("7", "8"), "7 and 1 more"),
        (("first", "second"), "first and 1 more"),
    ],
)
def test_a_group_is_called_by_what_its_runs_names_begin_with(
    names: tuple[str, ...], stem: str
) -> None:
    runs = [a_run(name, {**PPO, "seed": seed}) for seed, name in enumerate(names)]
    assert list(named(*runs)) == [stem]


def test_groups_of_one_name_are_told_apart_by_what_differs() -> None:
    def config(rate: float, seed: int) -> dict[str, Any]:
        return {"optimizer": {"learning_rate": rate}, "seed": seed}

    runs = [a_run(f"ppo-{n}", config(rate, n)) for n, rate in enumerate([0.1, 0.1, 0.2, 0.2])]
    assert named(*runs) == {
        "ppo (optimizer.learning_rate 0.1)": [0, 1],
        "ppo (optimizer.learning_rate 0.2)": [2, 3],
    }
    assert next(one.label for one in grouped(runs)).endswith("0.1) (2 runs)")


def test_keys_that_differ_are_found_wherever_they_are_nested_or_missing() -> None:
    adam, sgd = (
        a_run("a", {**PPO, "seed": 1}),
        a_run("b", {"kind": "ppo", "optimizer": {"kind": "sgd"}}),
    )
    configs = [flat_config(adam), flat_config(sgd)]
    assert differing_keys(configs) == ["optimizer.kind", "optimizer.learning_rate"]
    assert [shown_value(one, "optimizer.learning_rate") for one in configs] == ["0.001", "-"]
    players = [a_run(kind, {"players": [{"kind": kind}]}) for kind in ("best", "random")]
    assert differing_keys([*map(flat_config, players)]) == ["players.0.kind"]
    # 1, 1.0 and true are equal in Python, but not in a config.
    assert differing_keys([{"a": 1, "b": None}, {"a": True}]) == ["a", "b"]


def changed(key: str, new: object, boundary: int, **counters: int) -> dict[str, Any]:
    return {"key": key, "old": None, "new": new, "boundary": boundary, "counters": counters}


def test_a_run_whose_rate_was_changed_on_a_resume_is_of_another_config() -> None:
    rate = "optimizer.learning_rate"
    at = changed(rate, 0.0001, 3, epoch=1, opt_steps=300)
    one, two = a_run("a-0", {**PPO, "seed": 0}), a_run("a-1", {**PPO, "seed": 1}, changes=[at])
    assert list(named(one, two).values()) == [[0], [1]]
    values = [shown_value(flat_config(run), rate) for run in (one, two)]
    assert values == ["0.001", "0.001, then 0.0001 from opt_steps 300"]
    same = a_run("a-2", {**PPO, "seed": 2}, changes=[at])
    later = a_run("a-3", {**PPO, "seed": 3}, changes=[changed(rate, 0.0001, 4, opt_steps=400)])
    assert list(named(one, two, same, later).values()) == [[0], [1, 2], [3]]


def test_of_a_length_it_does_not_matter_where_it_was_raised() -> None:
    places = [changed("max_epochs", 6, 1, epoch=1), changed("max_epochs", 6, 3, epoch=3)]
    runs = [a_run(f"a-{n}", {"max_epochs": 3}, changes=[at]) for n, at in enumerate(places)]
    assert flat_config(runs[0]) == {"max_epochs": "3, then 6"}
    assert list(named(*runs)) == ["a"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        # Nothing was trained before the change, or between two at one place.
        ([changed("rate", 2, 0)], 2),
        ([changed("rate", 2, 5, epoch=1), changed("rate", 3, 5, epoch=1)], "1, then 3 from epoch 1"),
        ([changed("rate", 2, 5), changed("more.deep", 0, 5)], "1, then 2 from boundary 5"),
        ([changed("rate", 2, 5, env_steps=7), changed("rate", 1, 8, env_steps=9)],
         "1, then 2 from env_steps 7, then 1 from env_steps 9"),
        # The checkpoints since boundary 3 were lost, and with them the first change.
        ([changed("rate", 2, 5, epoch=5), changed("more", 0, 3, epoch=3)], 1),
        ([{"key": "rate", "old": 1, "new": 2, "counters": [7]}], "1, then 2 from boundary 1"),
    ],
)  # fmt: skip
def test_the_values_of_a_key_are_those_that_it_was_trained_with(
    changes: list[Any], told: object
) -> None:
    assert flat_config(a_run("a", {"rate": 1}, changes=changes))["rate"] == told


def test_of_runs_of_one_config_and_seed_the_first_that_ended_counts() -> None:
    runs = [a_run(f"a-{n}", {**PPO, "seed": 5}, seed=5) for n in range(3)]
    runs.append(a_run("other", {**PPO, "seed": 6}, seed=6))
    runs[1].events.append({"event": "finished"})
    (group,) = grouped(runs)
    assert (group.repeats, group.counted) == ({0: 1, 2: 1}, [1, 3])
    other = a_run("b", {**PPO, "gamma": 0.5}, seed=5)
    assert repeated([runs[0], other], (0, 1)) == {}
    assert repeated([a_run("a", seed=1), a_run("b", seed=1)], (0, 1)) == {}
    assert repeated([a_run("a", PPO), a_run("b", PPO)], (0, 1)) == {}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, seed in (("b", 1), ("a", 10), ("c", 2)):
        run = make_run(tmp_path / "runs" / name, name=name)
        note = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**note, "seed": seed, "group": "mine"}))
    make_run(tmp_path / "runs" / "alone", name="alone")
    return tmp_path / "runs"


def test_a_word_names_a_directory_a_run_below_the_root_or_a_group_by_seed(root: Path) -> None:
    assert runs_called(str(root / "a"), "nowhere") == [str(root / "a")]
    assert runs_called("alone", str(root)) == [str(root / "alone")]
    assert runs_called("mine", str(root)) == [str(root / name) for name in ("b", "c", "a")]


def test_a_name_of_a_run_and_a_group_is_refused(root: Path) -> None:
    make_run(root / "mine", name="mine")
    with pytest.raises(RunError, match="'mine' is both a run and a group of 3 runs; write"):
        runs_called("mine", str(root))
    assert runs_called(str(root / "mine"), str(root)) == [str(root / "mine")]
    assert runs_called("group:mine", str(root)) == [str(root / name) for name in ("b", "c", "a")]
    with pytest.raises(RunError, match="belongs to a group 'yours'"):
        runs_called("group:yours", str(root))


def test_the_name_of_a_group_is_taken_for_a_run(root: Path) -> None:
    make_run(root / member_name("mine", 7), name=member_name("mine", 7))
    assert free_name(root, "mine") == "mine-2"
    assert free_name(root, "alone") == "alone-2"
    assert free_name(root, "other") == "other"


def test_a_word_that_names_nothing_is_refused_and_a_damaged_run_belongs_to_no_group(
    root: Path,
) -> None:
    with pytest.raises(RunError, match="other is not a run directory; `ludus runs`"):
        runs_called("other", str(root))
    (root / "b" / "run.json").write_text("{")
    assert runs_called("mine", str(root)) == [str(root / name) for name in ("c", "a")]
