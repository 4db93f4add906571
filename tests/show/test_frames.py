"""Runs and their curves as pandas frames."""

from __future__ import annotations

import builtins
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.store.places import open_storage
from ludus.store.tags import change_tags
from tests.command_line import small_config

METRIC = "validation/epoch_accuracy"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by itself and a group of two; the logs of one hold values that are no numbers."""
    root = tmp_path_factory.mktemp("frames")
    ludus.build_trainer(small_config(name="alone", max_epochs=1)).fit(root=str(root))
    ludus.train_seeds(small_config(name="group"), [5, 3], root=root, show_on="none")
    change_tags(open_storage(root / "alone"), ["good", "early"])
    with (root / "alone" / "metrics.jsonl").open("a") as log:
        log.write(
            json.dumps({"opt_steps": 9, "odd": "nan", "text": {"a": "b"}, "flag": True}) + "\n"
        )
        log.write("damaged\n" + json.dumps({"odd": "-inf", "label": "word"}) + "\n")
    return root


def lines_of(run: Path) -> Iterator[dict[str, Any]]:
    for line in (run / "metrics.jsonl").read_text().splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def test_there_is_a_row_for_each_run(root: Path) -> None:
    frame = ludus.results(root).runs
    assert sorted(frame.index) == ["alone", "group-seed3", "group-seed5"]
    row = frame.loc["group-seed5"]
    assert (row.kind, row.group, row.seed, row.status) == ("supervised", "group", 5, "finished")
    assert row.metric == METRIC
    summary = ludus.train_seeds(small_config(name="group"), [5], root=root, show_on="none")
    assert row.score == summary.runs[5].score
    assert row.started == pd.Timestamp(
        json.loads((root / "group-seed5/run.json").read_text())["created"]
    )
    assert row.run_dir == str(root / "group-seed5")
    assert frame.loc["alone"].tags == ("early", "good")
    assert frame.loc["alone"].group is None
    assert frame["seed"].dtype == "Int64"


def test_counters_and_config_keys_are_columns(root: Path) -> None:
    frame = ludus.results(root).runs
    assert frame["epoch"].to_dict() == {"alone": 1, "group-seed3": 2, "group-seed5": 2}
    assert frame["max_epochs"].to_dict() == {"alone": 1, "group-seed3": 2, "group-seed5": 2}
    assert set(frame["optimizer.kind"]) == {small_config().optimizer.kind}
    assert frame.loc["alone", "model.widths"] == (8,)
    assert "model" not in frame.columns
    assert list(frame.columns).count("seed") == 1
    assert frame.columns[-1].startswith("settings.")
    assert frame.groupby("group").score.mean().index.tolist() == ["group"]


def test_a_config_key_with_the_name_of_a_column_is_kept_apart(root: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(root / "alone", tmp_path / "alone")
    path = tmp_path / "alone" / "config.yaml"
    path.write_text(path.read_text() + "score: 7\n")
    frame = ludus.results(tmp_path).runs
    assert frame.loc["alone", "config.score"] == 7
    assert frame.loc["alone", "score"] != 7


def test_curves_hold_every_logged_value(root: Path) -> None:
    frame = ludus.results(root).curves()
    expected = []
    for name in ("alone", "group-seed5", "group-seed3"):
        for record in lines_of(root / name):
            numbers = {k: v for k, v in record.items() if type(v) is float or v in ("nan", "-inf")}
            expected += [
                (name, record.get("opt_steps"), record.get("epoch"), metric, float(value))
                for metric, value in numbers.items()
            ]
    columns = frame[["run", "opt_steps", "epoch", "metric", "value"]].astype(object)
    found = [tuple(None if one is pd.NA else one for one in row) for row in columns.to_numpy()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert {*frame[frame.run == "alone"].group.isna()} == {True}
    assert {*frame[frame.run == "group-seed3"].seed} == {3}
    odd = frame[frame.metric == "odd"]
    assert math.isnan(odd.value.iloc[0])
    assert odd.value.iloc[1] == -math.inf
    assert not {"flag", "label", "text"} & {*frame.metric}


def test_curves_of_some_metrics(root: Path) -> None:
    results = ludus.results(root)
    one = results.curves(METRIC)
    assert {*one.metric} == {METRIC}
    assert len(one) == sum(METRIC in record for run in root.iterdir() for record in lines_of(run))
    both = results.curves([METRIC, "train/loss"])
    assert {*both.metric} == {METRIC, "train/loss"}
    assert list(both.metric.cat.categories) == [
        name for name in results.curves().metric.cat.categories if name in {*both.metric}
    ]
    last = one.groupby(["group", "seed"], observed=True).value.last()
    assert last.index.tolist() == [("group", 3), ("group", 5)]


def test_an_unknown_metric_an_empty_root_and_no_pandas_are_one_sentence(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LudusError, match=r"has logged 'train/los'\. Did you mean 'train/loss'\?"):
        ludus.results(root).curves("train/los")
    with pytest.raises(LudusError, match=r"no runs in .*; `ludus train CONFIG` makes one"):
        ludus.results(tmp_path)
    imported = builtins.__import__

    def without_pandas(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return imported(name, *args, **more)

    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(LudusError, match=r"ludus.results needs pandas; .*'ludus\[frames\]'"):
        ludus.results(root)


def test_a_damaged_run_costs_its_own_row(root: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(root, tmp_path / "runs")
    (tmp_path / "runs" / "alone" / "run.json").write_text("{")
    (tmp_path / "runs" / "group-seed3" / "metrics.jsonl").unlink()
    results = ludus.results(tmp_path / "runs")
    assert results.runs.loc["alone", "status"] == "damaged"
    assert {*results.curves().run} == {"group-seed5"}
    assert repr(results) == f"Results({str(tmp_path / 'runs')!r}): 3 runs"


def test_runs_in_an_object_store_are_read_tagged_and_deleted_too(tmp_path: Path) -> None:
    from ludus.cli.run_changes import is_output
    from ludus.store.deletion import check_deletable, delete_run
    from ludus.store.groups import group_members
    from ludus.store.places import runs_in

    root = f"memory://{tmp_path.name}/runs"
    try:
        result = ludus.train_seeds(small_config(name="far"), "0-1", root=root, show_on="none")
        change_tags(open_storage(result.runs[1].run_dir), ["kept"])
        results = ludus.results(root)
        assert results.runs.tags.to_dict() == {"far-seed0": (), "far-seed1": ("kept",)}
        assert results.runs.score.to_dict() == {f"far-seed{s}": v for s, v in result.scores.items()}
        assert {*results.curves(METRIC).run} == {"far-seed0", "far-seed1"}
        assert group_members(root, "far") == [f"{root}/far-seed0", f"{root}/far-seed1"]
        with pytest.raises(ConfigError, match="is the memory of this process"):
            ludus.train_seeds(small_config(name="far"), "0-3", jobs=2, root=root)
        storage = open_storage(f"{root}/far-seed0")
        storage.write("mine.txt", b"mine")
        with pytest.raises(LudusError, match=r"holds mine\.txt, which no run writes"):
            delete_run(storage.place, is_output)
        storage.remove("mine.txt")
        assert check_deletable(storage.place, is_output).num_bytes > 0
        delete_run(storage.place, is_output)
        assert runs_in(root) == [f"{root}/far-seed1"]
        assert not open_storage(storage.place).names("")
    finally:
        fsspec.filesystem("memory").store.clear()
