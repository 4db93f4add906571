"""A segment lets go of its memory once it is on disk, and is read from there when it is needed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from ludus.core.errors import CheckpointError
from ludus.store import checkpoint
from ludus.store.checkpoint import digest_of
from ludus.store.codec import Segment, encode
from ludus.store.local import LocalStorage
from ludus.store.segments import mend

ABOUT = {
    "offsets": {},
    "fingerprint": {},
    "exact": True,
    "inexact_because": [],
    "best": None,
    "models": [],
}


def write(segment: Segment, root: Path, number: int = 1) -> None:
    root.mkdir(exist_ok=True)
    checkpoint.write(LocalStorage(root), number, encode({"part": {"segment": segment}}), ABOUT)


def test_a_written_segment_holds_no_tensors_and_still_has_its_content(tmp_path: Path) -> None:
    segment = Segment.of({"x": torch.arange(5.0)})
    digest = digest_of({"segment": segment})
    write(segment, tmp_path)
    assert segment._tensors is None
    assert segment.tensors["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert segment._tensors is None
    assert digest_of({"segment": segment}) == digest


def test_a_segment_can_be_written_to_another_directory_from_the_first(tmp_path: Path) -> None:
    segment = Segment.of({"x": torch.arange(5.0)})
    write(segment, tmp_path / "one")
    write(segment, tmp_path / "two")
    found = checkpoint.read(LocalStorage(tmp_path / "two"), 1).state["part"]["segment"]
    assert found.tensors["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_segment_whose_file_is_gone_says_that_it_is_lost(tmp_path: Path) -> None:
    segment = Segment.of({"x": torch.ones(2)})
    write(segment, tmp_path)
    assert not segment.is_lost
    for folder in ("segments", "segments-copy"):
        (tmp_path / folder / str(segment.name)).unlink()
    with pytest.raises(CheckpointError, match="segments"):
        write(segment, tmp_path, number=2)
    assert segment.is_lost


def test_a_segment_can_be_read_while_another_thread_writes_it(tmp_path: Path) -> None:
    segments = [Segment.of({"x": torch.full((3,), float(n))}) for n in range(30)]
    taken = encode({"part": {"segments": segments}})
    writer = threading.Thread(
        target=checkpoint.write, args=(LocalStorage(tmp_path), 1, taken, ABOUT), daemon=True
    )
    writer.start()
    while writer.is_alive():
        assert [segment.tensors["x"][0].item() for segment in segments] == list(range(30))
    writer.join()
    assert all(segment._tensors is None for segment in segments)


DAMAGES = {
    "a byte more": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "a bit flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x7f"),
    "lost": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("folder", ["segments", "segments-copy"])
def test_one_damaged_file_of_a_segment_costs_nothing_and_is_mended(
    folder: str, damage: str, tmp_path: Path
) -> None:
    storage, segment = LocalStorage(tmp_path), Segment.of({"x": torch.arange(5.0)})
    write(segment, tmp_path)
    path = tmp_path / folder / str(segment.name)
    whole = path.read_bytes()
    DAMAGES[damage](path)
    found = checkpoint.read(storage, 1).state["part"]["segment"]
    assert found.tensors["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    told: list[str] = []
    mend(storage, [str(segment.name)], tell=told.append)
    assert path.read_bytes() == whole
    assert len(told) == (0 if (folder, damage) == ("segments-copy", "lost") else 1)
    mend(storage, [str(segment.name)], tell=pytest.fail)


def test_a_damaged_segment_costs_only_the_checkpoints_that_need_it(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    first, second = (Segment.of({"x": torch.full((3,), float(n))}) for n in range(2))
    write(first, tmp_path, number=1)
    write(second, tmp_path, number=2)
    for folder in ("segments", "segments-copy"):
        (tmp_path / folder / str(second.name)).write_bytes(b"damaged")
    told: list[str] = []
    found = checkpoint.read_newest(storage, damaged=told.append)
    assert found is not None
    assert found.number == 1
    assert "checkpoint 2 is damaged" in told[0]


def test_the_collector_leaves_files_that_ludus_did_not_make(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    write(Segment.of({"x": torch.ones(1)}), tmp_path, number=1)
    for name in ("segments/mine.safetensors", "segments-copy/notes.txt", "models/best-of-all/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    write(Segment.of({"x": torch.zeros(1)}), tmp_path, number=2)
    checkpoint.collect(storage, keep_last=1)
    assert len(storage.names("segments")) == len(storage.names("segments-copy")) == 2
    assert (tmp_path / "segments/mine.safetensors").read_text() == "mine"
    assert (tmp_path / "models/best-of-all/a").read_text() == "mine"
