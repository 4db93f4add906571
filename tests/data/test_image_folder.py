"""Pictures in folders: read lazily, cropped by (seed, epoch, index), and what a broken one does."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.data.batches.memory import make_batches
from ludus.data.sources import image_folder
from ludus.data.sources._pictures import PictureView, decode, random_box
from ludus.testing import trainers
from tests.data.files import load, picture, truncate, write_pictures
from tests.supervised.conftest import QUIET, lines

CNN = {
    "kind": "cnn", "channels": 3, "height": 8, "width": 8, "blocks": [4], "outputs": 2,
    "activation": "relu", "dropout": 0.0,
}  # fmt: skip
PLAIN = {"random_crop": None, "horizontal_flip": 0.0}


def batches(dataset: Any, **changed: Any) -> Any:
    options = {"batch_size": 4, "shuffle": True, "drop_last": False, "workers": 0, "seed": 3}
    return make_batches(dataset, device=torch.device("cpu"), **{**options, **changed})


def epoch(data: Any, number: int) -> list[list[Tensor]]:
    data.start(number)
    found = []
    while not data.has_ended():
        found.append(data.next())
    data.close()
    return found


def same(one: list[list[Tensor]], two: list[list[Tensor]]) -> bool:
    return all(
        torch.equal(a, b)
        for first, second in zip(one, two, strict=True)
        for a, b in zip(first, second, strict=True)
    )


def test_pictures_are_uint8_until_they_are_on_the_device(tmp_path: Path) -> None:
    splits = load(write_pictures(tmp_path / "pets"), **PLAIN)
    assert (splits.name, splits.num_classes) == ("pets", 2)
    assert (len(splits.train), len(splits.validation), splits.test) == (9, 3, None)  # type: ignore[arg-type]
    pixels, label = splits.train[0]
    assert (pixels.dtype, pixels.shape) == (torch.uint8, (3, 8, 8))
    data = batches(splits.train, shuffle=False)
    data.start(0)
    inputs, labels = data.next()
    assert (inputs.dtype, inputs.shape, int(labels[0])) == (torch.float32, (4, 3, 8, 8), label)
    mean, std = torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0.5, 0.25, 0.5])
    slow = (pixels / 255 - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(inputs[0], slow, atol=1e-6, rtol=1e-5)
    # The second class is green.
    assert torch.equal(inputs[:, 1, 0, 0] > 0, labels == 1)


def test_the_centre_is_cropped_as_pillow_would_by_hand(tmp_path: Path) -> None:
    from PIL import Image

    image = picture(1, size=(60, 40), green=9)
    image.save(tmp_path / "a.png")
    view = PictureView(20, 20, 3, 20, None, None, 0.0)
    found = decode((tmp_path / "a.png").read_bytes(), view)
    slow = image.resize((20, 20), Image.Resampling.BILINEAR, box=(10, 0, 50, 40))
    assert np.array_equal(found.permute(1, 2, 0).numpy(), np.array(slow))
    grey = decode((tmp_path / "a.png").read_bytes(), PictureView(10, 30, 1, None, None, None, 0.0))
    assert grey.shape == (1, 10, 30)


def test_a_large_jpeg_is_decoded_small_and_looks_the_same(tmp_path: Path) -> None:
    image = picture(3, size=(640, 480), green=90)
    image.save(tmp_path / "a.jpg", quality=95)
    image.save(tmp_path / "a.png")
    view = PictureView(24, 24, 3, 24, None, None, 0.0)
    jpeg, exact = (decode((tmp_path / f"a.{kind}").read_bytes(), view) for kind in ("jpg", "png"))
    assert (jpeg.int() - exact.int()).abs().max() <= 6


def test_odd_pictures_are_converted(tmp_path: Path) -> None:
    from PIL import Image

    view = PictureView(6, 6, 3, None, None, None, 0.0)
    deep = Image.fromarray(np.full((9, 9), 0x8000, np.uint16))
    clear = picture(1).convert("RGBA")
    indexed = picture(1).quantize(8)
    indexed.info["transparency"] = bytes([0, 255, 255, 255])
    for number, image in enumerate((deep, clear, indexed, picture(1).convert("L"))):
        path = tmp_path / f"{number}.png"
        image.save(path)
        assert decode(path.read_bytes(), view).shape == (3, 6, 6)
    assert decode((tmp_path / "0.png").read_bytes(), view).unique().tolist() == [0x80]


def test_random_parts_have_the_areas_and_shapes_asked_for() -> None:
    random.seed(0)
    for _ in range(300):
        left, top, right, bottom = random_box(100, 80, [0.2, 0.5], [0.5, 2.0])
        assert 0 <= left < right <= 100
        assert 0 <= top < bottom <= 80
        assert 0.18 < (right - left) * (bottom - top) / 8000 < 0.52
        assert 0.48 < (right - left) / (bottom - top) < 2.1
    # No such shape fits into a picture this long; its middle is taken.
    assert random_box(1000, 10, [1.0, 1.0], [0.5, 2.0]) == (490, 0, 510, 10)


def test_crops_come_from_seed_epoch_and_index_with_any_number_of_workers(tmp_path: Path) -> None:
    dataset = load(write_pictures(tmp_path / "pets")).train
    first = epoch(batches(dataset), 0)
    assert same(first, epoch(batches(dataset, workers=2), 0))
    assert not same(first, epoch(batches(dataset), 1))
    for workers in (0, 2):
        data = batches(dataset, workers=workers)
        data.load_state_dict({"epoch": 0, "position": 1})
        assert same([data.next(), data.next()], first[1:])
        data.close()


def test_validation_pictures_are_neither_cropped_nor_mirrored_by_chance(tmp_path: Path) -> None:
    validation = load(write_pictures(tmp_path / "pets")).validation
    assert same(epoch(batches(validation), 0), epoch(batches(validation, shuffle=True), 0))
    one, other = validation[0][0], validation[0][0]  # type: ignore[index]
    assert torch.equal(one, other)


def test_folders_may_be_the_splits(tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "train")
    write_pictures(tmp_path / "val", 4)
    write_pictures(tmp_path / "test", 6)
    given = {"path": str(tmp_path), "validation_fraction": None, "test_fraction": None}
    splits = load(section, **given)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [12, 4, 6]  # type: ignore[arg-type]
    splits = load(section, **{**given, "test_fraction": 0.25})
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [9, 4, 3]  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match="holds test, train, val, which are splits and no classes"
    ):
        load(section, path=str(tmp_path))
    (tmp_path / "val" / "cow").mkdir()
    with pytest.raises(ConfigError, match="has the class cow, of which there is no picture"):
        load(section, **given)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"path": "nowhere"}, "there is no such folder"),
        ({"mean": [0.5]}, "'mean' has 1 numbers, but 'channels' is 3"),
        ({"resize": 7}, "'resize' is 7, less than the 8 pixels of an input; raise it to 8"),
        ({"random_crop": {"scale": [0.5, 0.1], "ratio": [1.0, 1.0]}}, "smaller number first"),
        ({"random_crop": {"scale": [0.5, 1.5], "ratio": [1.0, 1.0]}}, "no part is larger"),
        ({"validation_fraction": None}, "has no folder train/; make it, or set"),
        ({"validation_fraction": 0.6, "test_fraction": 0.4}, "leave nothing of 12 examples"),
        ({"path": "FOLDER/cat"}, "has 0 sub-folders, and each is a class"),
        ({"path": "FOLDER/cat/000.png"}, "which is a file; give a folder"),
    ],
)
def test_a_mistake_is_one_sentence(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "pets")
    changed = {
        key: value.replace("FOLDER", section["path"]) if key == "path" else value
        for key, value in changed.items()
    }
    with pytest.raises(ConfigError, match=said):
        load(section, **changed)


def test_a_class_without_a_picture_is_named_and_other_files_are_left_alone(tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "pets")
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("x")
    (tmp_path / "pets" / ".hidden").mkdir()
    assert len(load(section).train) == 9  # type: ignore[arg-type]
    (tmp_path / "pets" / "cow").mkdir()
    with pytest.raises(ConfigError, match=r"pets/cow holds no picture .* or delete the folder"):
        load(section)


def test_a_missing_library_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = write_pictures(tmp_path / "pets")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"needs Pillow; .* pip install 'ludus\[images\]'"):
        load(section)


def test_broken_pictures_are_named_before_training(tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "pets")
    path = tmp_path / "pets" / "dog" / "003.png"
    truncate(path)
    with pytest.raises(ConfigError, match=r"dog/003.png cannot be decoded \(.*\); mend or delete"):
        load(section)
    path.write_text("no picture")
    with pytest.raises(ConfigError, match=r"003.png cannot be decoded \(it is no picture\)"):
        load(section)
    for name in ("003", "005"):
        path.with_stem(name).write_bytes(b"")
    with pytest.raises(ConfigError, match=r"003.png .*it is empty\), and 1 more like it"):
        load(section)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_picture_that_the_quick_look_missed_ends_in_one_sentence(
    workers: int, tmp_path: Path
) -> None:
    dataset = load(write_pictures(tmp_path / "pets")).train
    for path in (tmp_path / "pets").glob("*/*.png"):
        truncate(path)
    data = batches(dataset, workers=workers)
    data.start(0)
    with pytest.raises(LudusError, match=r"^/.*png cannot be decoded \(.*\); mend .* to skip$"):
        data.next()
    data.close()
    (tmp_path / "pets" / "cat" / "000.png").unlink()
    data = batches(dataset, workers=workers, batch_size=9)
    data.start(0)
    with pytest.raises(LudusError, match="cannot be"):
        data.next()
    data.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_skipped_picture_is_replaced_by_its_neighbour_and_told_once(
    workers: int, tmp_path: Path
) -> None:
    section = {**write_pictures(tmp_path / "pets"), "broken": "skip", **PLAIN}
    section["validation_fraction"] = 0.0
    whole = epoch(batches(load(section).train, shuffle=False), 0)
    truncate(tmp_path / "pets" / "cat" / "002.png")
    data = batches(load(section).train, shuffle=False, workers=workers)
    found = epoch(data, 0)
    # Of six cats the second is broken; the third stands in its place.
    assert torch.equal(found[0][0][1], whole[0][0][2])
    assert torch.equal(found[0][0][2:], whole[0][0][2:])
    assert same(found[1:], whole[1:])
    (told,) = data.news()
    assert "cat/002.png cannot be decoded" in told
    assert same(found, epoch(data, 0))
    assert data.news() == []
    for path in (tmp_path / "pets").glob("*/*.png"):
        truncate(path)
    with pytest.raises(LudusError, match=r"no picture in .* can be read"):
        epoch(data, 1)
    processes = getattr(data._iterator, "_workers", [])
    assert len(processes) == workers
    data.close()
    assert not any(process.is_alive() for process in processes)


def test_of_many_broken_pictures_the_number_is_told_as_it_doubles(tmp_path: Path) -> None:
    section = {**write_pictures(tmp_path / "pets", 70), "broken": "skip"}
    for path in sorted((tmp_path / "pets" / "dog").glob("*.png"))[:34]:
        truncate(path)
    dataset: Any = load(section, validation_fraction=0.0).train
    epoch(batches(dataset), 0)
    told = dataset.news()
    assert len(told) == 10 + 2
    assert told[-1].startswith("32 pictures so far cannot be decoded")


def make(section: dict[str, Any], **changed: Any) -> Any:
    config = ludus.example(changed.pop("kind", "supervised")).replace(
        **{
            "data": section, "model": CNN, "batch_size": 4, "max_epochs": 2, "engine": "eager",
            "evaluation.patience": None, "evaluation.keep": 0,
            "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0}, **QUIET, **changed,
        }
    )  # fmt: skip
    return ludus.build_trainer(config)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_on_pictures_killed_anywhere_ends_with_the_same_bytes(
    workers: int, tmp_path: Path
) -> None:
    section = {**write_pictures(tmp_path / "pets", 20), "broken": "skip"}
    truncate(tmp_path / "pets" / "dog" / "007.png")
    changed = {"settings.workers": workers}
    trainers.check_kill_anywhere(
        lambda: make(section, **changed), tmp_path / "runs", max_kills=1 if workers else 2
    )


def test_the_number_of_workers_changes_no_byte_and_news_are_events(tmp_path: Path) -> None:
    section = {**write_pictures(tmp_path / "pets", 20), "broken": "skip"}
    truncate(tmp_path / "pets" / "dog" / "007.png")
    endings = []
    for workers in (0, 2):
        trainer = make(section, **{"settings.workers": workers})
        result = trainer.fit(root=str(tmp_path), name=f"run{workers}")
        assert result.exact
        endings.append(trainers.ending_of(result.run_dir))
        events = [line for line in lines(result.run_dir, "events.jsonl") if line["event"] == "data"]
        assert len(events) == 1
        assert "dog/007.png cannot be decoded" in str(events[0])
    assert endings[0] == endings[1]


def test_a_resume_with_other_pictures_is_refused(tmp_path: Path) -> None:
    section = write_pictures(tmp_path / "pets", 40)
    make(section).fit(root=str(tmp_path), name="run")
    picture(9, size=(11, 10)).save(tmp_path / "pets" / "cat" / "004.png")
    with pytest.raises(LudusError, match="data"):
        make(section, max_epochs=3).fit(root=str(tmp_path), name="run", resume=True)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_active_learner_asks_for_pictures(workers: int, tmp_path: Path) -> None:
    section = {**write_pictures(tmp_path / "pets", 24), "broken": "skip", "test_fraction": 0.25}
    truncate(tmp_path / "pets" / "dog" / "007.png")
    changed = {"max_rounds": 2, "initial_labels": 6, "queries": 3, "settings.workers": workers}
    trainer = make(
        section,
        kind="active",
        strategy={"kind": "entropy", "shortlist": None},
        calibration=None,
        **changed,
    )
    result = trainer.fit(root=str(tmp_path))
    assert result.status == "finished"
    assert result.exact


def test_the_quick_look_opens_no_more_than_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def noted(path: Path, *, header_only: bool = False) -> None:
        opened.append(header_only)

    monkeypatch.setattr(image_folder, "problem_of", noted)
    monkeypatch.setattr(image_folder, "_NUM_DECODED", 5)
    monkeypatch.setattr(image_folder, "_NUM_OPENED", 10)
    load(write_pictures(tmp_path / "pets", 40))
    assert opened.count(False) == 5
    assert 10 <= len(opened) <= 15


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_of_32_bits_are_refused_for_nobody_knows_their_range(
    mode: str, tmp_path: Path
) -> None:
    from PIL import Image

    section = write_pictures(tmp_path / "pets")
    Image.new(mode, (8, 8), 70_000).save(tmp_path / "pets" / "dog" / "000.tiff")
    with pytest.raises(ConfigError, match=r"000\.tiff.*32 bits.*save it with 8 or 16 bits"):
        load(section)
