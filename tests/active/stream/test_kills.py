"""An edge or a datacenter that is killed at any instant goes on where it was, and ends the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.active.drift.shifts import Simulator
from ludus.active.drift.trigger import Trigger
from ludus.active.stream import retrainer
from ludus.active.stream.config import read_stream_config
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.edges import Watch
from ludus.active.stream.link import DirectLink
from ludus.config.base import from_data
from ludus.config.registry import find
from ludus.core.errors import CheckpointError, LudusError, RunError
from ludus.store.local import LocalStorage
from tests.active.stream.streams import (
    SECRET,
    center,
    edge,
    hello,
    lines,
    retraining,
    say,
    whole,
    write,
)

# Two retrainings: at the first check, and once the digits have changed.
HARD = {
    "kind": "hard_switch", "period": 4,
    "distributions": [[1.0] * 5 + [0.0] * 5, [0.0] * 5 + [1.0] * 5],
}  # fmt: skip
WATCH = {
    "estimators": [{"kind": "entropy", "threshold": 1.2}, {"kind": "ks", "alpha": 0.001}],
    "after_windows": 1, "max_consecutive": 3,
}  # fmt: skip
TRAINING = retraining()["training"] | {"max_rounds": 1, "max_epochs": 12, "initial_labels": 30}
STREAM = {"shift": HARD, "num_steps": 10, "keep_samples": 60, "send_samples": 30}


class Killed(BaseException):
    """What stands for a SIGKILL: nothing catches it."""


class Instants:
    """Counts what is written and asked, and kills before or after the one that is due."""

    def __init__(self) -> None:
        self.count, self.due = 0, -1

    def runtime(self, does: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.passed()
            found = does(*given, **named)
            self.passed()
            return found

        return counted

    def passed(self) -> None:
        self.count += 1
        if self.count == self.due:
            raise Killed


@pytest.fixture
def instants(monkeypatch: pytest.MonkeyPatch) -> Instants:
    """Every write, removal and message is an instant to be killed at; retraining is done in between."""
    found = Instants()
    for name in ("write", "remove", "commit"):
        monkeypatch.setattr(LocalStorage, name, found.runtime(getattr(LocalStorage, name)))
    monkeypatch.setattr(DirectLink, "ask", found.runtime(DirectLink.ask))
    made: dict[bytes, Path] = {}

    def tend(self: Datacenter) -> None:
        """Retrain as the real one does, in this process, and once for the same samples."""
        if not self.is_busy:
            return
        task = self._task(self._update + 1)
        key = Path(task["samples"]).read_bytes()
        kept = Path(task["kept"])
        if key not in made:
            before, found.due = (found.count, found.due), -1
            config = from_data(task.pop("config"), source="test")
            retrainer.retrain(config, **{**task, "samples": Path(task["samples"])})
            found.count, found.due = before
            made[key] = kept.with_name(f"copy_{len(made)}")
            shutil.copytree(kept, made[key])
        elif not kept.exists():
            shutil.copytree(made[key], kept)
        self._update, self._status = self._update + 1, "idle"
        self._retrained["model"] = self._update
        self._save()

    monkeypatch.setattr(Datacenter, "tend", tend)
    return found


def go(root: Path, host: str = "edge") -> None:
    """Walk the whole stream, or the rest of it, edge and datacenter in one process."""
    at_edge = WATCH if host == "edge" else None
    one = center(root, training=TRAINING, state_estimation=None if at_edge else WATCH)
    edge(
        root, DirectLink(one), state_estimation_host=host, state_estimation=at_edge, **STREAM
    ).run()


def outcome(root: Path) -> tuple[Any, ...]:
    """Return all that a stream has come to: its lines, its state, and its model."""
    model = next((root / "edge/models").iterdir())
    lives = {(root / "edge/state.json").read_text().split('"life":"')[1][:16]}
    texts = [(root / name / "state.json").read_text() for name in ("edge", "datacenter")]
    for life in lives:
        texts = [text.replace(life, "LIFE") for text in texts]
    plain = [text.split('"state":')[1].split('"sha256"')[0] for text in texts]
    return (
        (root / "edge/stream.jsonl").read_bytes(), model.name, *plain,
        (model / "weights.safetensors").read_bytes(),
    )  # fmt: skip


def killed_everywhere(root: Path, instants: Instants, host: str, *, every: int) -> None:
    """Walk a stream whole, and again with a kill at each of its instants; all must come to the same."""
    torch.set_num_threads(1)
    go(root / "whole", host)
    whole, num_instants = outcome(root / "whole"), instants.count
    assert [line["update"] for line in lines(root / "whole")] == [0, 1, 1, 1, 2]
    assert num_instants > 60
    # The models before the last are gone.
    assert [path.name for path in (root / "whole/edge/models").iterdir()] == ["update_2"]
    for due in range(1, num_instants + 1, every):
        place = root / f"killed_{due}"
        instants.count, instants.due = 0, due
        with pytest.raises(Killed):
            go(place, host)
        instants.due = -1
        go(place, host)
        assert outcome(place) == whole, f"killed at instant {due} of {num_instants}"
        shutil.rmtree(place)


@pytest.mark.covers("003-S7")
@pytest.mark.parametrize("host", ["edge", "datacenter"])
def test_a_stream_killed_at_some_instants_ends_as_if_never_killed(
    host: str, instants: Instants, tmp_path: Path
) -> None:
    killed_everywhere(tmp_path, instants, host, every=11)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["edge", "datacenter"])
def test_a_stream_killed_at_any_instant_ends_as_if_never_killed(
    host: str, instants: Instants, tmp_path: Path
) -> None:
    killed_everywhere(tmp_path, instants, host, every=1)


@pytest.mark.parametrize(
    ("owner", "name", "does"),
    [
        (Trigger, "load_state_dict", lambda self, state: None),
        (Simulator, "load_state_dict", lambda self, state: None),
        (LocalStorage, "cut_back", lambda self, offsets, keep: None),
        (Watch, "reset", lambda self, number, **_: self.trigger and self.trigger.retrained()),
    ],
)
def test_a_part_that_is_forgotten_is_found_out(
    owner: Any, name: str, does: Any, instants: Instants, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(owner, name, does)
    with pytest.raises((AssertionError, LudusError)):
        killed_everywhere(tmp_path, instants, "datacenter" if owner is Watch else "edge", every=5)


def test_an_edge_that_has_ended_says_so_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    quiet = {"state_estimation": {**WATCH, "estimators": WATCH["estimators"][1:]}, "num_steps": 4}
    edge(tmp_path, DirectLink(center(tmp_path)), **quiet).run()
    before = lines(tmp_path)
    told: list[str] = []
    edge(tmp_path, DirectLink(center(tmp_path)), told, **quiet).run()
    assert any("all 4 steps" in line and "raise num_steps" in line for line in told)
    assert lines(tmp_path) == before
    edge(tmp_path, DirectLink(center(tmp_path)), told, **{**quiet, "num_steps": 8}).run()
    assert lines(tmp_path)[:2] == before
    assert [line["step"] for line in lines(tmp_path)] == [2, 4, 6, 8]
    edge(
        tmp_path / "whole", DirectLink(center(tmp_path / "whole")), **{**quiet, "num_steps": 8}
    ).run()
    assert lines(tmp_path / "whole") == lines(tmp_path)


def test_an_edge_of_another_config_does_not_go_on(tmp_path: Path) -> None:
    edge(tmp_path, DirectLink(center(tmp_path)), num_steps=1).run()
    with pytest.raises(
        RunError, match="begun with another 'seed', 'samples_per_step'; give the edge another"
    ):
        edge(tmp_path, DirectLink(center(tmp_path)), seed=1, samples_per_step=19)


def test_a_state_that_has_changed_is_refused_and_not_begun_anew(tmp_path: Path) -> None:
    edge(tmp_path, DirectLink(center(tmp_path)), num_steps=1).run()
    state = tmp_path / "edge/state.json"
    whole = state.read_text()
    tensors = next((tmp_path / "edge").glob("state_*.safetensors"))
    state.write_text(whole.replace('"num_sent":0', '"num_sent":1'))
    with pytest.raises(CheckpointError, match="has changed since it was written"):
        edge(tmp_path, DirectLink(center(tmp_path)), num_steps=1)
    state.write_text(whole)
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"7")
    with pytest.raises(CheckpointError, match="has changed since it was written"):
        edge(tmp_path, DirectLink(center(tmp_path)), num_steps=1)


def test_an_edge_whose_datacenter_has_forgotten_it_says_so(
    tmp_path: Path, instants: Instants
) -> None:
    go(tmp_path)
    shutil.rmtree(tmp_path / "datacenter")
    one = edge(
        tmp_path,
        DirectLink(center(tmp_path, training=TRAINING)),
        state_estimation=WATCH,
        **{**STREAM, "num_steps": 12},
    )
    with pytest.raises(LudusError, match="is at update 0, and the edge has seen update 2"):
        one.run()


def test_a_datacenter_does_not_train_for_an_update_that_is_not_the_next(tmp_path: Path) -> None:
    one = center(tmp_path)
    hello(one)
    for kind in ("prep_retraining", "retraining"):
        with pytest.raises(LudusError, match="asks for update 2, and the datacenter is at 0"):
            say(one, kind, {"update": 2}, {})


@pytest.mark.parametrize("kind", ["edge", "datacenter"])
def test_a_folder_is_one_process_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_SECRET", SECRET)
    config = read_stream_config(write(tmp_path / "a.yaml", whole(kind, 9)))
    with (
        LocalStorage(tmp_path / "runs" / kind).lock(),
        pytest.raises(RunError, match="is in use by this very process"),
    ):
        find("program", kind)(config).run(str(tmp_path / "runs"))
