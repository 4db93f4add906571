"""Tables that users bring, as CSV and Parquet: what becomes of columns, and how mistakes are named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import ConfigError
from ludus.testing import trainers
from tests.data.files import load, rows, write_table
from tests.supervised.conftest import MLP, QUIET

SUFFIXES = ("csv", "parquet")
each_file = pytest.mark.parametrize("suffix", SUFFIXES)


def whole(section: dict[str, Any], **changed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all inputs and targets, in the order of the file."""
    none = {"validation_fraction": 0.0, "test_fraction": 0.0}
    inputs, targets = load(section, **none, **changed).train.tensors  # type: ignore[attr-defined]
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0)).argsort()
    return inputs[order], targets[order]


@each_file
def test_columns_become_numbers_categories_and_classes(suffix: str, tmp_path: Path) -> None:
    section = write_table(tmp_path / f"Some Table.{suffix}")
    splits = load(section)
    assert (splits.name, splits.task, splits.num_classes) == ("some_table", "classification", 2)
    train: Any = splits.train
    assert train.columns == ["height", "width", "city=Bonn", "city=Oslo", "city=Rome"]
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [20, 10, 10]  # type: ignore[arg-type]
    inputs, targets = whole(section)
    assert inputs.dtype == torch.float32
    assert targets.dtype == torch.int64
    for row, given, target in zip(rows(), inputs.tolist(), targets.tolist(), strict=True):
        hot = [float(row["city"] == city) for city in ("Bonn", "Oslo", "Rome")]
        assert given == [row["height"], row["width"], *hot]
        assert target == (1 if row["kind"] == "tall" else 0)


@each_file
def test_the_same_table_is_the_same_data_in_both_formats(suffix: str, tmp_path: Path) -> None:
    one, two = (whole(write_table(tmp_path / f"a.{each}")) for each in SUFFIXES)
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


@each_file
def test_numbers_are_predicted_one_or_several(suffix: str, tmp_path: Path) -> None:
    section = write_table(tmp_path / f"a.{suffix}")
    options = {"task": "regression", "features": ["city"]}
    _, targets = whole(section, targets=["height"], **options)
    assert targets.shape == (40,)
    _, targets = whole(section, targets=["width", "height"], **options)
    assert targets[:3].tolist() == [[r["width"], r["height"]] for r in rows(3)]
    scaled: Any = load(section, targets=["width", "height"], standardise=True, **options).train
    assert torch.allclose(scaled.tensors[1].std(0), torch.ones(2), atol=1e-5)


@each_file
def test_classes_that_are_numbers_are_in_the_order_of_numbers(suffix: str, tmp_path: Path) -> None:
    table = [{"a": n, "label": (10, 9, 2)[n % 3]} for n in range(9)]
    section = write_table(tmp_path / f"a.{suffix}", table)
    _, targets = whole(section, targets=["label"], one_hot=[])
    assert targets.tolist() == [2, 1, 0] * 3


@each_file
def test_empty_cells_are_refused_by_line_or_filled(suffix: str, tmp_path: Path) -> None:
    table = rows()
    table[2]["height"] = table[4]["height"] = table[5]["city"] = None
    section = write_table(tmp_path / f"a.{suffix}", table)
    place = "line 4" if suffix == "csv" else "row 3"
    with pytest.raises(
        ConfigError, match=f"column height of .* is empty in {place} and 1 more; fill"
    ):
        load(section)
    with pytest.raises(ConfigError, match=f"empty in {'line 7' if suffix == 'csv' else 'row 6'};"):
        load(section, features=["city"])
    inputs, _ = whole(section, missing="zero")
    assert inputs[[2, 4], 0].tolist() == [0, 0]
    assert inputs[5, 2:].tolist() == [0, 0, 0]
    inputs, _ = whole(section, missing="mean")
    known = [row["height"] for row in table if row["height"] is not None]
    assert inputs[[2, 4], 0].tolist() == pytest.approx([sum(known) / len(known)] * 2)
    part: Any = load(section, missing="mean").train
    assert torch.isfinite(part.tensors[0]).all()
    table[7]["kind"] = None
    section = write_table(tmp_path / f"b.{suffix}", table)
    with pytest.raises(ConfigError, match=r"column kind .* a target cannot be filled in"):
        load(section, missing="zero")


@each_file
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"one_hot": []}, "column city of .* no number.* name .*in data.one_hot"),
        ({"features": ["heigth"], "one_hot": []}, "has no column heigth. Did you mean 'height'"),
        ({"targets": ["color"]}, "has no column color"),
        ({"targets": ["kind", "height"]}, "names 2 columns, but classification has one"),
        ({"features": ["kind"], "one_hot": []}, "'features' names kind, which is a target"),
        ({"features": ["height"]}, "'one_hot' names city, which is not among the features"),
        ({"features": [], "one_hot": []}, "'features' is empty"),
        ({"path": "nowhere.csv"}, "there is no such file; a path that does not begin with /"),
        ({"validation_fraction": 0.5, "test_fraction": 0.5}, "leave nothing of 40 examples"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_section_is_one_sentence(
    changed: dict[str, Any], said: str, suffix: str, tmp_path: Path
) -> None:
    section = write_table(tmp_path / f"a.{suffix}")
    with pytest.raises(ConfigError, match=said) as caught:
        load(section, **changed)
    assert len(str(caught.value).splitlines()) <= 2


def test_bad_lines_of_a_csv_file_are_named_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    section = write_table(path)
    good = path.read_text().splitlines()

    def refused(lines: list[str], **changed: Any) -> str:
        path.write_text("\n".join(lines))
        with pytest.raises(ConfigError) as caught:
            load(section, **changed)
        return str(caught.value)

    assert "line 5 of" in refused([*good[:4], "1,2,Rome", *good[4:]])
    # An empty line is no row, and a cell may hold a line break.
    quoted = [good[0], '1,2,"Ro\nme",tall', "", *good[1:3], "x7,2,Rome,tall", *good[3:]]
    assert "column height of" in (told := refused(quoted))
    assert "holds 'x7' in line 7, which is no number" in told
    assert "line 2 of" in refused([good[0], "1e39,2,Rome,tall", *good[1:]])
    assert "line 2 of" in refused([good[0], "inf,2,Rome,tall", *good[1:]])
    # Python reads these as numbers, Arrow does not.
    for odd in ("\uff11", "1_000"):
        assert f"holds '{odd}' in line 2" in refused([good[0], f"{odd},2,Rome,tall", *good[1:]])
    assert "two columns named height" in refused(["height,height,city,kind", *good[1:]])
    assert "no rows" in refused([good[0], ""])
    assert "not a table" in refused([])
    assert "has no column kind" in refused(good, delimiter=";", one_hot=[])
    path.write_bytes(b"height,width,city,kind\n1,2,Bonn,\xff\xfe\n")
    with pytest.raises(ConfigError, match="not a table that can be read"):
        load(section)


def test_another_delimiter_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    section = write_table(path)
    expected = whole(section)
    path.write_text("\ufeff" + path.read_text().replace(",", ";"))
    found = whole(section, delimiter=";")
    assert torch.equal(found[0], expected[0])


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    section = write_table(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(b"something else")
    with pytest.raises(ConfigError, match="is not a Parquet file that can be read"):
        load(section)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(ConfigError, match="which is a folder; give a file"):
        load(section, path=str(tmp_path / "folder.parquet"))


def test_booleans_integers_and_categories_of_parquet_are_read(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {
        "flag": pyarrow.array([True, False, None, True]),
        "count": pyarrow.array([1, 2, 3, 4], pyarrow.int64()),
        "city": pyarrow.array(["a", "b", "a", "b"]).dictionary_encode(),
        "label": pyarrow.array([1, 0, 1, 0], pyarrow.int8()),
    }
    section = write_table(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    inputs, targets = whole(section, targets=["label"], missing="zero")
    assert inputs.tolist() == [[1, 1, 1, 0], [0, 2, 0, 1], [0, 3, 1, 0], [1, 4, 0, 1]]
    assert targets.tolist() == [1, 0, 1, 0]


@each_file
def test_a_missing_library_is_told_with_the_command_that_installs_it(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = write_table(tmp_path / f"a.{suffix}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ConfigError, match=rf"{suffix} needs pyarrow; .*pip install 'ludus\[tables\]'"
    ):
        load(section)


def make(section: dict[str, Any], **changed: Any) -> Any:
    config = ludus.example("supervised").replace(
        **{
            "data": section, "model": {**MLP, "inputs": 5, "outputs": 2}, "batch_size": 4,
            "max_epochs": 2, "engine": "eager", "evaluation.patience": None, "evaluation.keep": 0,
            "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0}, **QUIET, **changed,
        }
    )  # fmt: skip
    return ludus.build_trainer(config)


@each_file
def test_a_run_on_a_table_killed_anywhere_ends_with_the_same_bytes(
    suffix: str, tmp_path: Path
) -> None:
    section = write_table(tmp_path / f"a.{suffix}")
    trainers.check_kill_anywhere(lambda: make(section), tmp_path / "runs", max_kills=2)


def test_a_resume_with_another_table_is_refused(tmp_path: Path) -> None:
    section = write_table(tmp_path / "a.csv")
    make(section).fit(root=str(tmp_path), name="run")
    table = rows()
    table[3]["height"] = 2.5
    write_table(tmp_path / "a.csv", table)
    with pytest.raises(ludus.LudusError, match="data"):
        make(section, max_epochs=3).fit(root=str(tmp_path), name="run", resume=True)


def test_a_model_with_fewer_outputs_than_classes_is_refused(tmp_path: Path) -> None:
    table = [{**row, "kind": f"k{n % 3}"} for n, row in enumerate(rows())]
    section = write_table(tmp_path / "a.csv", table)
    with pytest.raises(
        ConfigError, match=r"'model.outputs' is 2, but the data has 3 classes; set it"
    ):
        make(section).fit(root=str(tmp_path))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_large_numbers_that_differ_little_are_told_apart(suffix: str, tmp_path: Path) -> None:
    """As float32 all times of a minute would be one number."""
    path = tmp_path / f"times.{suffix}"
    times = [1_700_000_000 + second for second in range(60)]
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.table({"time": times, "y": [float(second % 7) for second in range(60)]})
    if suffix == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    section = {
        "kind": suffix, "path": str(path), "targets": ["y"], "features": None, "task": "regression",
        "one_hot": [], "missing": "refuse", "validation_fraction": 0.0, "test_fraction": 0.0,
        "standardise": True, **({"delimiter": ","} if suffix == "csv" else {}),
    }  # fmt: skip
    inputs = load(section).train.tensors[0]  # type: ignore[attr-defined]
    assert inputs.dtype == torch.float32
    assert len(inputs.unique()) == 60


def test_a_header_after_a_blank_line_or_with_a_line_break_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    section = write_table(path)
    whole = path.read_text()
    for text in ("\n" + whole, whole.replace("width", '"wi\ndth"', 1)):
        path.write_text(text)
        assert len(load(section).train)


def test_a_header_in_another_encoding_and_an_odd_delimiter_are_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    section = write_table(path)
    with pytest.raises(ConfigError, match="not a table that can be read"):
        load(section, delimiter="\u00a7")
    path.write_bytes(path.read_bytes().replace(b"width", b"w\xe9dth", 1))
    with pytest.raises(ConfigError, match="it is no UTF-8; save it as UTF-8"):
        load(section)


def test_a_target_that_is_no_number_is_told_to_be_a_class(tmp_path: Path) -> None:
    section = write_table(tmp_path / "a.csv")
    with pytest.raises(ConfigError, match=r"set data\.task to classification"):
        load(section, task="regression")
