"""What a labeller is shown is what the run asked: its files are sealed, and steer no terminal."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.active.labelling.queries import Queries, as_csv, read_queries, shown, write_queries
from ludus.active.labelling.sitting import Labelling
from ludus.core.errors import StorageError
from ludus.store.places import open_storage
from ludus.store.storage import Storage
from tests.active.conftest import HUMAN, small_active
from tests.command_line import Ludus


def queries(**changes: Any) -> Queries:
    given: dict[str, Any] = {
        "round": 3, "rows": [5, 7], "num_classes": 2, "class_names": ["cat", "dog"],
        "columns": None, "picture": [1, 2, 2], "inputs": torch.arange(8.0).reshape(2, 4),
    }  # fmt: skip
    return Queries(**{**given, **changes})


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A run that has asked something, by a config."""
    place = tmp_path / "runs/wines"
    place.mkdir(parents=True)
    note = {"format": 1, "kind": "active", "origin": "config", "plugins": ["own_kinds"]}
    (place / "run.json").write_text(json.dumps(note))
    return open_storage(str(place))


def files_of(storage: Storage) -> tuple[Path, Path]:
    folder = Path(storage.place, "queries")
    return folder / "round-0003.json", folder / "round-0003.safetensors"


def test_queries_come_back_as_they_were_written(storage: Storage) -> None:
    write_queries(storage, queries())
    found = read_queries(storage)
    assert found is not None
    assert (found.rows, found.class_names, found.picture) == ([5, 7], ["cat", "dog"], [1, 2, 2])
    assert isinstance(found.inputs, Tensor)
    assert found.inputs.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("which", [0, 1])
def test_no_bit_of_a_round_can_change_unseen(storage: Storage, which: int) -> None:
    write_queries(storage, queries())
    path = files_of(storage)[which]
    whole = path.read_bytes()
    text = json.loads(files_of(storage)[0].read_bytes())
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        if _is_same(bytes(changed), text):
            continue  # a space between two words of JSON
        with pytest.raises(StorageError) as caught:
            read_queries(storage)
        assert str(caught.value).endswith(f"ludus resume {storage.place} --plugin own_kinds")


def _is_same(data: bytes, text: object) -> bool:
    try:
        return bool(json.loads(data) == text)
    except ValueError:
        return False


def resealed(storage: Storage, **fields: Any) -> None:
    """Change fields of the file as somebody would who knows how it is sealed."""
    path = files_of(storage)[0]
    told = {**json.loads(path.read_text()), **fields}
    del told["seal"]
    seal = hashlib.sha256(json.dumps(told).encode()).hexdigest()
    path.write_text(json.dumps({**told, "seal": seal}))


@pytest.mark.parametrize(
    "fields",
    [
        {"picture": [-1, -1, 4]}, {"picture": [1, 2]}, {"picture": [0, 2, 2]}, {"picture": [4.0, 1, 1]},
        {"picture": [1, 3, 3]}, {"picture": "abc"}, {"rows": [5, 5]}, {"rows": [-1, 7]}, {"rows": [1]},
        {"rows": 5}, {"num_classes": -2}, {"round": None}, {"inputs_sha256": 5}, {"format": 1},
        {"inputs_sha256": "0" * 64},
    ],
)  # fmt: skip
def test_fields_that_cannot_be_are_refused_even_where_the_seal_is_right(
    storage: Storage, fields: dict[str, Any]
) -> None:
    write_queries(storage, queries())
    resealed(storage, **fields)
    with pytest.raises(StorageError, match=r"is damaged .* to have it rewritten: ludus resume"):
        read_queries(storage)


def test_a_file_without_a_seal_is_not_believed(storage: Storage) -> None:
    write_queries(storage, queries())
    path = files_of(storage)[0]
    told = json.loads(path.read_text())
    del told["seal"]
    path.write_text(json.dumps(told))
    with pytest.raises(StorageError, match="has changed since it was written"):
        read_queries(storage)


def test_examples_without_numbers_and_rounds_without_rows_can_be_shown(storage: Storage) -> None:
    empty: dict[str, Any] = {"picture": None, "columns": [], "inputs": torch.zeros(2, 0)}
    assert shown(queries(**empty), 0) == ""
    assert (
        as_csv(queries(**{**empty, "rows": [], "inputs": torch.zeros(0, 4)}), []) == "row,label\n"
    )


def test_the_newest_round_is_that_of_the_highest_number(storage: Storage) -> None:
    for number in (9_999, 10_000):
        write_queries(storage, queries(round=number, rows=[number, 1]))
    storage.write("queries/round-zz.json", b"not ours")
    found = read_queries(storage)
    assert found is not None
    assert found.round == 10_000


class Terminal(io.StringIO):
    """A standard input that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_names_of_classes_cannot_steer_the_terminal_through_the_prompt(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["\x1b]0;owned\x07cat", "dog\x1b[2J\r\n\x9b1A\u202e"]
    write_queries(storage, queries(class_names=names))
    prompts: list[str] = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return "q"

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr(sys, "stdin", Terminal())
    with Labelling(storage.place) as labelling:
        labelling.ask()
    assert len(prompts) == 1
    assert prompts[0].startswith("a class from 0 to 1, or one of cat, dog")
    assert prompts[0].isprintable()


class Watches:
    """A callback of a script."""

    def after_round(self, run: object) -> None: ...


def waiting_script(monkeypatch: pytest.MonkeyPatch) -> str:
    """Let a script's own run wait for labels; return where it is."""
    monkeypatch.setattr(sys, "argv", ["my train.py"])
    trainer: Any = ludus.build_trainer(small_active(oracle=HUMAN))
    trainer.add(Watches())
    assert trainer.fit(root="runs").status == "interrupted"
    return "runs/wines"


def test_the_way_to_go_on_that_is_told_after_labelling_is_one_that_works(
    call: Ludus, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = waiting_script(monkeypatch)
    told = call("label", place, "--resume", stdin="0\n" * 6).refusal()
    assert "only the script can resume it; run the script (my train.py) again" in told
    told = call("label", place, stdin="0\n" * 6).out
    assert told.endswith("to go on: run 'my train.py' again with fit(resume=True)\n")
    assert "run 'my train.py' again with fit(resume=True)" in reported(call, place)


def reported(call: Ludus, place: str) -> str:
    assert call("report", place).code == 0
    return Path(place, "report.html").read_text().replace("&#x27;", "'").replace("&#39;", "'")


def test_a_run_of_plugins_is_resumed_with_them(storage: Storage, call: Ludus) -> None:
    write_queries(storage, queries())
    told = call("label", storage.place, stdin="0\n1\n").out
    assert told.endswith(f"to go on: ludus resume {storage.place} --plugin own_kinds\n")
