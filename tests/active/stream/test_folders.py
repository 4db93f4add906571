"""The folder of an edge or a datacenter: claimed before it is written; other people's files stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.active.stream.link import DirectLink
from ludus.active.stream.stored_state import StoredState
from ludus.core.errors import CheckpointError, RunError
from ludus.store.local import LocalStorage
from tests.active.stream.streams import Recorder, center, edge, estimation, standalone, write
from tests.command_line import Ludus, in_process

BEGIN: dict[str, Callable[[Path], Any]] = {
    "edge": lambda root: edge(root, Recorder(root / "elsewhere")).run(),
    "datacenter": center,
}


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


def put(root: Path, *names: str) -> dict[str, bytes]:
    """Write files below a folder; return all that are there."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the user's {name}")
    return found(root)


def found(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "LOCK"
    }


@pytest.mark.parametrize("kind", BEGIN)
@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            ["run.json", "models/best/model.json", "models/last/model.json"],
            "is the folder of a run",
        ),
        (["models/update_3/weights.safetensors"], "holds files that are no .*'s \\(models\\)"),
        (["state_1.safetensors"], "holds files"),
        (["stream.jsonl"], "holds files"),
        (["a.py", "b.py", "c.py", "d.py"], "\\(a.py, b.py, c.py, ...\\)"),
    ],
)
def test_a_folder_of_somebody_else_is_refused_and_stays_as_it_is(
    kind: str, names: list[str], told: str, tmp_path: Path
) -> None:
    before = put(tmp_path / kind, *names)
    with pytest.raises(RunError, match=f"{told}.*give the {kind} another name"):
        BEGIN[kind](tmp_path)
    assert found(tmp_path / kind) == before


def test_the_command_refuses_an_edge_that_is_named_like_a_run(tmp_path: Path, call: Ludus) -> None:
    before = put(tmp_path / "runs/edge", "run.json", "models/best/model.json")
    path = write(tmp_path / "stream.yaml", standalone())
    told = call("stream", str(path), "--root", str(tmp_path / "runs")).refusal()
    assert "runs/edge is the folder of a run" in told
    assert found(tmp_path / "runs/edge") == before


def test_files_that_are_put_beside_the_models_of_an_edge_stay(tmp_path: Path) -> None:
    calm = {"state_estimation": estimation(99.0)}
    edge(tmp_path, Recorder(tmp_path), num_steps=2, **calm).run()
    own = ["models/best/weights.safetensors", "models/mine.pt", "models/update_mine", "notes.txt"]
    put(tmp_path / "edge", *own)
    left = ["models/update_7.tmp-12/model.json", "models/update_8.trash-12/model.json"]
    put(tmp_path / "edge", *left, "models/update_9.aside-0/model.json")
    edge(tmp_path, Recorder(tmp_path), num_steps=4, **calm).run()
    assert all((tmp_path / "edge" / name).exists() for name in own)
    names = {path.name for path in (tmp_path / "edge/models").iterdir()}
    assert names == {"best", "mine.pt", "update_mine", "update_0"}


def test_the_models_before_the_last_update_are_deleted(tmp_path: Path) -> None:
    one = edge(tmp_path, Recorder(tmp_path), state_estimation=estimation(0.000001))
    one.run()
    assert one.update > 0
    assert [path.name for path in (tmp_path / "edge/models").iterdir()] == [f"update_{one.update}"]


@pytest.mark.parametrize(("kind", "other"), [("edge", "datacenter"), ("datacenter", "edge")])
def test_an_edge_and_a_datacenter_have_not_the_same_folder(
    kind: str, other: str, tmp_path: Path
) -> None:
    BEGIN[other](tmp_path)
    (tmp_path / other).rename(tmp_path / kind)
    before = found(tmp_path / kind)
    told = f"{kind} was begun by the {other}; give the {kind} another name"
    with pytest.raises(RunError, match=told):
        BEGIN[kind](tmp_path)
    assert found(tmp_path / kind) == before


@pytest.mark.parametrize("left", ["LOCK", "state.json.tmp-31"])
def test_what_a_kill_leaves_of_a_beginning_is_begun_anew(left: str, tmp_path: Path) -> None:
    put(tmp_path / "edge", left)
    edge(tmp_path, DirectLink(center(tmp_path)), num_steps=1).run()
    assert (tmp_path / "edge/models/update_0").exists()


def test_a_folder_that_was_claimed_and_no_more_is_begun_with_any_config(tmp_path: Path) -> None:
    edge(tmp_path, DirectLink(center(tmp_path)), num_steps=1)
    # A kill after the model was kept, and before the first state.
    put(tmp_path / "edge", "models/update_0/weights.safetensors", "models/update_0/model.json")
    again = edge(tmp_path, DirectLink(center(tmp_path)), num_steps=1, samples_per_step=19)
    again.run()
    assert again.simulator.step == 1


@pytest.mark.parametrize("change", [{"number": 7}, {"sha256": "0"}])
def test_a_claim_that_was_edited_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "edge")
    storage.make_root()
    assert StoredState(storage, "edge").read() is None
    state = tmp_path / "edge/state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | change))
    with pytest.raises(CheckpointError, match="has changed since it was written"):
        StoredState(storage, "edge").read()
