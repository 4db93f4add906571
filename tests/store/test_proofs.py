"""What `ludus verify` has proved is written down, and found again by the very same run alone."""

from __future__ import annotations

import sys
import sysconfig
import types
from pathlib import Path

import pytest

from ludus.store import proofs
from ludus.store.cache import cache_folder
from ludus.store.directory import write_note
from ludus.store.local import LocalStorage

FACTS = {"torch": "2.13.0", "threads": "1"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path / "cache"))


def run_with(key: str | None, root: Path) -> Path:
    """Make a directory with the run.json of such a run."""
    storage = LocalStorage(root / "run")
    storage.make_root()
    write_note(storage, {"format": 1, "kind": "supervised", proofs.KEY: key})
    return root / "run"


def test_a_proof_is_found_again_for_the_same_config_and_machine_and_no_other(
    tmp_path: Path,
) -> None:
    key = proofs.subject_of("a" * 64, FACTS, by_script=False).key
    assert not proofs.is_proved(key)
    assert proofs.record(run_with(key, tmp_path), num_kills=3)
    assert proofs.is_proved(proofs.subject_of("a" * 64, FACTS, by_script=False).key)
    assert not proofs.is_proved(proofs.subject_of("b" * 64, FACTS, by_script=False).key)
    assert not proofs.is_proved(
        proofs.subject_of("a" * 64, {**FACTS, "threads": "2"}, by_script=False).key
    )
    proofs.forget(tmp_path / "run")
    assert not proofs.is_proved(key)


def test_a_script_is_the_same_with_the_same_text_arguments_and_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, module = tmp_path / "train.py", tmp_path / "witness_net.py"
    script.write_text("print(1)\n")
    module.write_text("width = 8\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script), "--small"])

    def key() -> str | None:
        return proofs.subject_of("a" * 64, FACTS, by_script=True).key

    alone = key()
    assert alone == key()
    assert alone != proofs.subject_of("a" * 64, FACTS, by_script=False).key
    __import__("witness_net")
    try:
        with_module = key()
        assert with_module != alone
        module.write_text("width = 9\n")
        assert key() != with_module
    finally:
        del sys.modules["witness_net"]
    monkeypatch.setattr(sys, "argv", [str(script), "--large"])
    assert key() != alone
    monkeypatch.setattr(sys, "argv", [str(script), "--small"])
    assert key() == alone
    script.write_text("print(2)\n")
    assert key() != alone


def test_a_module_of_the_users_counts_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, module = tmp_path / "scripts" / "train.py", tmp_path / "src" / "witness_far.py"
    for path in (script, module):
        path.parent.mkdir()
        path.write_text("width = 8\n")
    monkeypatch.syspath_prepend(str(module.parent))
    monkeypatch.setattr(sys, "argv", [str(script)])
    __import__("witness_far")
    try:
        before = proofs.subject_of("a" * 64, FACTS, by_script=True)
        assert before == proofs.subject_of("a" * 64, FACTS, by_script=True)
        module.write_text("width = 9\n")
        after = proofs.subject_of("a" * 64, FACTS, by_script=True)
        assert (after.key != before.key, after.code != before.code) == (True, True)
    finally:
        del sys.modules["witness_far"]


@pytest.mark.parametrize("settled_ns", [-1, proofs._SETTLED_NS], ids=["settled", "just written"])
def test_a_file_that_was_hashed_is_hashed_again_once_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_ns: int
) -> None:
    monkeypatch.setattr(proofs, "_SETTLED_NS", settled_ns)
    path = tmp_path / "module.py"
    path.write_text("width = 8\n")
    before, written = proofs._hash(str(path)), path.stat().st_ctime_ns
    assert before == proofs._hash(str(path))
    # One that was written within this tick of the file system's clock would look unchanged.
    assert (str(path) in proofs._known_hashes) == (settled_ns < 0)
    while path.stat().st_ctime_ns == written:
        path.write_text("width = 9\n")
    assert proofs._hash(str(path)) != before
    path.unlink()
    assert proofs._hash(str(path)) is None


def test_what_starts_a_script_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ludus verify` starts it by a module of ludus, `python train.py` does not."""
    from ludus.testing import script_victim

    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    monkeypatch.setattr(sys, "argv", [str(script)])
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    by_python = proofs.subject_of("a" * 64, FACTS, by_script=True).key
    main.__file__ = script_victim.__file__
    assert proofs.subject_of("a" * 64, FACTS, by_script=True).key == by_python
    main.__file__ = sysconfig.__file__
    assert proofs.subject_of("a" * 64, FACTS, by_script=True).key == by_python


@pytest.mark.parametrize("argv", [[], [""], ["-c"], ["/nowhere/train.py"]], ids=str)
def test_without_a_script_that_can_be_found_again_nothing_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    key = proofs.subject_of("a" * 64, FACTS, by_script=True).key
    assert key is None
    assert not proofs.record(run_with(key, tmp_path), num_kills=3)
    assert not proofs.is_proved(key)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"proof_key": "other"}'], ids=str)
def test_a_damaged_proof_is_none(tmp_path: Path, damage: bytes) -> None:
    key = proofs.subject_of("a" * 64, FACTS, by_script=False).key
    proofs.record(run_with(key, tmp_path), num_kills=3)
    (cache_folder() / "proved" / f"{key}.json").write_bytes(damage)
    assert not proofs.is_proved(key)


def test_a_cache_that_cannot_be_written_costs_the_proof_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path / "file"))
    key = proofs.subject_of("a" * 64, FACTS, by_script=False).key
    assert not proofs.record(run_with(key, tmp_path), num_kills=3)
    assert not proofs.is_proved(key)
