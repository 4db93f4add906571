"""A segment lets go of its memory once it is on disk, and is read from there when it is needed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from ludus.core.errors import CheckpointError
from ludus.run import checkpoint
from ludus.run.checkpoint import digest_of
from ludus.run.codec import Segment, encode
from ludus.run.storage import Storage

ABOUT = {
    "offsets": {},
    "fingerprint": {},
    "exact": True,
    "inexact_because": [],
    "best": None,
    "models": [],
}


def write(segment: Segment, root: Path, number: int = 1) -> None:
    checkpoint.write(Storage(root), number, encode({"part": {"segment": segment}}), ABOUT)


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
    found = checkpoint.read(Storage(tmp_path / "two"), 1).state["part"]["segment"]
    assert found.tensors["x"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_segment_whose_file_is_gone_says_that_it_is_lost(tmp_path: Path) -> None:
    segment = Segment.of({"x": torch.ones(2)})
    write(segment, tmp_path)
    assert not segment.is_lost
    (tmp_path / "segments" / str(segment.name)).unlink()
    with pytest.raises(CheckpointError, match="segments/"):
        write(segment, tmp_path, number=2)
    assert segment.is_lost


def test_a_segment_can_be_read_while_another_thread_writes_it(tmp_path: Path) -> None:
    segments = [Segment.of({"x": torch.full((3,), float(n))}) for n in range(30)]
    taken = encode({"part": {"segments": segments}})
    writer = threading.Thread(
        target=checkpoint.write, args=(Storage(tmp_path), 1, taken, ABOUT), daemon=True
    )
    writer.start()
    while writer.is_alive():
        assert [segment.tensors["x"][0].item() for segment in segments] == list(range(30))
    writer.join()
    assert all(segment._tensors is None for segment in segments)
