"""What is made once is kept whole, checked when read, and never needed."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ludus.store import cache
from ludus.store.cache import cache_folder, cached_tensors

MADE = {"numbers": torch.arange(1000.0), "mask": torch.tensor([True, False])}


class Maker:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> dict[str, Tensor]:
        self.count += 1
        return MADE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ask(maker: Maker, told: list[str], **about: object) -> dict[str, Tensor]:
    return cached_tensors("things", about, maker, tell=told.append)


def is_right(found: dict[str, Tensor]) -> bool:
    return found.keys() == MADE.keys() and all(torch.equal(found[n], MADE[n]) for n in MADE)


def only_file(folder: Path) -> Path:
    (found,) = (folder / "things").iterdir()
    return found


def test_it_is_made_once_and_read_after_that(folder: Path) -> None:
    maker, told = Maker(), []
    assert is_right(ask(maker, told, seed=1))
    assert is_right(ask(maker, told, seed=1))
    assert (maker.count, told) == (1, [])
    assert only_file(folder).suffix == ".safetensors"
    # Whoever shares the folder may read it.
    assert only_file(folder).stat().st_mode & 0o777 == 0o644


def test_whatever_it_is_about_makes_another() -> None:
    maker = Maker()
    for about in ({"seed": 1}, {"seed": 2}, {"seed": 1, "format": 2}):
        ask(maker, [], **about)
    assert maker.count == 3


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "other"])
def test_a_damaged_file_is_told_and_made_again(folder: Path, damage: str) -> None:
    maker, told = Maker(), []
    ask(maker, told)
    path = only_file(folder)
    whole = path.read_bytes()
    flipped = bytes([whole[-5] ^ 1])
    path.write_bytes(
        {
            "flipped": whole[:-5] + flipped + whole[-4:],
            "cut": whole[:-5],
            "empty": b"",
            "other": b"not tensors",
        }[damage]
    )
    assert is_right(ask(maker, told))
    assert maker.count == 2
    (sentence,) = told
    assert str(path) in sentence
    assert sentence.endswith("it is made again")
    assert is_right(ask(maker, told))
    assert (maker.count, len(told)) == (2, 1)


def test_a_folder_that_cannot_be_written_is_told_and_does_no_harm(folder: Path) -> None:
    folder.write_text("a file stands here")
    maker, told = Maker(), []
    assert is_right(ask(maker, told))
    (sentence,) = told
    assert "is not kept, so it will be made again" in sentence


def test_a_write_that_fails_leaves_nothing_behind(folder: Path, monkeypatch) -> None:
    def fails(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "sync_file", fails)
    told: list[str] = []
    assert is_right(ask(Maker(), told))
    assert "No space left" in told[0]
    assert list((folder / "things").iterdir()) == []


def _ask_often(start: object, wrong: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    for seed in range(10):
        if not is_right(ask(Maker(), [], seed=seed)):
            wrong.set()  # type: ignore[attr-defined]


def test_processes_that_make_the_same_at_once_all_have_it_whole(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, wrong = context.Barrier(3), context.Event()
    children = [context.Process(target=_ask_often, args=(start, wrong)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(300)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert not wrong.is_set()
    kept = list((folder / "things").iterdir())
    assert len(kept) == 10
    assert all(path.suffix == ".safetensors" for path in kept)


def test_the_folder_is_in_the_home_where_none_is_named(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LUDUS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ludus"
    monkeypatch.setenv("LUDUS_CACHE", "~/elsewhere")
    assert cache_folder() == tmp_path / "elsewhere"
