"""What each key of a data set from a user's files does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.seeds import seed_everything
from tests.data.files import load, rows, truncate, write_pictures, write_table, write_tokens
from tests.keys.table import changes

TABLES = "dataset csv, dataset parquet"


def table(kind: str, folder: Path, **changed: Any) -> dict[str, Any]:
    """Return the section of a table of 40 rows, some cells of which may be changed."""
    written = rows()
    for name, value in changed.items():
        written[1][name] = value
    return write_table(folder / f"table.{kind.split()[1]}", written)


@changes(TABLES, "kind", "path")
def test_the_file_that_is_named_is_read_as_its_kind(kind: str, tmp_path: Path) -> None:
    section = table(kind, tmp_path)
    assert load(section).name == "table"
    other = write_table(tmp_path / f"other.{kind.split()[1]}", rows(20))
    assert len(load(section, path=other["path"]).train) == 10  # type: ignore[arg-type]
    wrong = {"csv": "parquet", "parquet": "csv"}[kind.split()[1]]
    changed = {"kind": wrong, "path": section["path"]}
    with pytest.raises(ConfigError, match=r"can be read|has no column|cells, not"):
        load({**write_table(tmp_path / f"x.{wrong}"), **changed})


@changes(TABLES, "validation_fraction", "test_fraction", "standardise")
def test_a_table_is_divided_and_scaled(kind: str, tmp_path: Path) -> None:
    section = table(kind, tmp_path)
    parts: Any = load(section, validation_fraction=0.1, test_fraction=0.2)
    assert [len(one) for one in (parts.validation, parts.test, parts.train)] == [4, 8, 28]
    scaled: Any = load(section, standardise=True).train
    assert torch.allclose(scaled.tensors[0].std(0), torch.ones(5), atol=1e-4)
    assert not torch.allclose(parts.train.tensors[0].std(0), torch.ones(5), atol=1e-4)


@changes(TABLES, "targets", "features", "one_hot")
def test_these_columns_are_learned_from_and_these_predicted(kind: str, tmp_path: Path) -> None:
    section = table(kind, tmp_path)

    def columns(**changed: Any) -> Any:
        train: Any = load(section, **changed).train
        return train.columns

    assert columns() == ["height", "width", "city=Bonn", "city=Oslo", "city=Rome"]
    assert columns(features=["width", "height"], one_hot=[]) == ["width", "height"]
    assert len(columns(one_hot=["city", "height"])) == 7 + 1 + 3
    other = load(section, targets=["city"], one_hot=["kind"])
    assert other.num_classes == 3
    assert len(columns(targets=["city"], one_hot=["kind"])) == 4


@changes(TABLES, "task")
def test_a_target_is_a_class_or_a_number(kind: str, tmp_path: Path) -> None:
    section = {**table(kind, tmp_path), "targets": ["height"], "features": ["width"], "one_hot": []}
    classes: Any = load(section).train
    numbers: Any = load(section, task="regression").train
    assert classes.tensors[1].dtype == torch.int64
    assert numbers.tensors[1].dtype == torch.float32


@changes(TABLES, "missing")
def test_an_empty_cell_is_refused_or_filled(kind: str, tmp_path: Path) -> None:
    section = table(kind, tmp_path, height=None)
    none = {"validation_fraction": 0.0, "test_fraction": 0.0}
    with pytest.raises(ConfigError, match="is empty in"):
        load(section)
    filled: list[Any] = [load(section, missing=how, **none).train for how in ("mean", "zero")]
    zero, mean = (sorted(one.tensors[0][:, 0].tolist()) for one in reversed(filled))
    assert zero.count(0.0) == mean.count(0.0) + 1


@changes("dataset csv", "delimiter")
def test_cells_are_divided_by_this_character(kind: str, tmp_path: Path) -> None:
    section = table(kind, tmp_path)
    path = Path(section["path"])
    path.write_text(path.read_text().replace(",", ";"))
    with pytest.raises(ConfigError, match="has no column"):
        load(section)
    train: Any = load(section, delimiter=";").train
    assert len(train.columns) == 5


@changes("dataset tokens", "kind", "path", "dtype", "vocabulary_size")
def test_ids_of_this_type_are_read_from_this_file(kind: str, tmp_path: Path) -> None:
    section = write_tokens(tmp_path / "a.bin")
    assert load(section).name == "a"
    assert load(section).num_classes == 17
    assert load(section, vocabulary_size=20).num_classes == 20
    other = write_tokens(tmp_path / "b.npy", 300)
    assert load(section, path=other["path"], dtype=None).name == "b"
    wide = load(section, dtype="uint32", vocabulary_size=2**31)
    assert len(wide.train) == 24  # type: ignore[arg-type]


@changes("dataset tokens", "block_size", "examples_per_epoch")
def test_blocks_have_this_size_and_an_epoch_so_many(kind: str, tmp_path: Path) -> None:
    section = write_tokens(tmp_path / "a.bin")
    train: Any = load(section, block_size=5).train
    assert (len(train), len(train[0][0])) == (79, 5)
    assert len(load(section, examples_per_epoch=7).train) == 7  # type: ignore[arg-type]


@changes("dataset tokens", "validation_fraction", "validation_path")
def test_validation_tokens_are_a_share_or_a_file(kind: str, tmp_path: Path) -> None:
    section = write_tokens(tmp_path / "a.bin")
    halves: Any = load(section, validation_fraction=0.5)
    assert (len(halves.train), len(halves.validation)) == (31, 31)
    assert load(section, validation_fraction=0.0).validation is None
    np.full(30, 5, np.uint16).tofile(tmp_path / "other.bin")
    other = {"validation_fraction": None, "validation_path": str(tmp_path / "other.bin")}
    validation: Any = load(section, **other).validation
    assert validation[2][1].tolist() == [5] * 8


IMAGES = "dataset image_folder"
PLAIN = {"random_crop": None, "horizontal_flip": 0.0, "validation_fraction": 0.0}


def pixels(section: dict[str, Any], row: int = 0, **changed: Any) -> torch.Tensor:
    """Return the pixels of a training picture, as floats."""
    seed_everything(1)
    found: torch.Tensor = load(section, **{**PLAIN, **changed}).train[row][0]
    return found.float()


@changes(IMAGES, "kind", "path", "validation_fraction", "test_fraction")
def test_pictures_of_this_folder_are_divided(kind: str, tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "a" / "train")
    write_pictures(tmp_path / "a" / "val", 4)
    write_pictures(tmp_path / "a" / "test", 6)

    def sizes(**changed: Any) -> list[int]:
        found = load(section, **changed)
        return [len(p) for p in (found.train, found.validation, found.test) if p is not None]  # type: ignore[arg-type]

    assert sizes() == [9, 3]
    assert sizes(validation_fraction=0.5, test_fraction=0.25) == [3, 6, 3]
    root = {"path": str(tmp_path / "a")}
    assert sizes(validation_fraction=None, test_fraction=0.0, **root) == [12, 4]
    assert sizes(validation_fraction=0.0, test_fraction=None, **root) == [12, 6]


@changes(IMAGES, "height", "width", "channels", "resize")
def test_an_input_has_this_size_and_shows_the_centre_or_all(kind: str, tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "a")
    assert pixels(section, height=6, width=4).shape == (3, 6, 4)
    one = {"channels": 1, "mean": [0.5], "std": [0.5]}
    assert pixels(section, **one).shape == (1, 8, 8)
    # Red rises from left to right over 12 x 10 pixels.
    reds = {resize: pixels(section, resize=resize)[0, 0] for resize in (None, 8, 16)}
    widths = [float(red[-1] - red[0]) for red in reds.values()]
    assert widths[0] > widths[1] > 1.5 * widths[2]


@changes(IMAGES, "random_crop", "random_crop.scale", "random_crop.ratio")
def test_training_shows_parts_of_this_area_and_shape(kind: str, tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "a")

    def spans(scale: list[float], ratio: list[float]) -> float:
        dataset = load(section, **{**PLAIN, "random_crop": {"scale": scale, "ratio": ratio}}).train
        found = [dataset[0][0][0, 0].float() for _ in range(40)]
        return float(np.mean([float(red[-1] - red[0]) for red in found]))

    assert spans([0.1, 0.2], [1.0, 1.0]) < spans([0.8, 0.9], [1.0, 1.0])
    assert spans([0.2, 0.3], [0.4, 0.5]) < spans([0.2, 0.3], [2.0, 2.5])
    crop = {"scale": [0.1, 0.2], "ratio": [1.0, 1.0]}
    assert not torch.equal(pixels(section, random_crop=crop), pixels(section))
    validation = load(section, random_crop=crop).validation
    assert torch.equal(validation[0][0], validation[0][0])  # type: ignore[index]


@changes(IMAGES, "horizontal_flip")
def test_training_pictures_are_mirrored_so_often(kind: str, tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "a")
    assert torch.equal(pixels(section, horizontal_flip=1.0), pixels(section).flip(2))
    dataset = load(section, **{**PLAIN, "horizontal_flip": 0.3}).train
    seed_everything(0)
    mirrored = [bool(dataset[0][0][0, 0, 0] > 128) for _ in range(400)]
    assert 0.2 < np.mean(mirrored) < 0.4


@changes(IMAGES, "mean", "std")
def test_inputs_are_normalised_by_mean_and_deviation(kind: str, tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "a")
    raw = pixels(section).byte()[None]
    for mean, std in (([0.0] * 3, [1.0] * 3), ([0.1, 0.2, 0.3], [0.5, 2.0, 4.0])):
        train: Any = load(section, mean=mean, std=std).train
        slow = (raw / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
        assert torch.allclose(train.finished(raw), slow, atol=1e-6)


@changes(IMAGES, "broken")
def test_a_broken_picture_is_refused_or_replaced(kind: str, tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "a")
    truncate(tmp_path / "a" / "cat" / "000.png")
    with pytest.raises(ConfigError, match=r"cat/000.png cannot be decoded"):
        load(section)
    assert torch.equal(pixels(section, 0, broken="skip"), pixels(section, 1, broken="skip"))
