"""Fault 6: a run directory made by an enemy runs no code, hangs nothing, and touches nothing outside."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import CheckpointError, RunError
from ludus.store import checkpoint, codec
from ludus.store.checkpoint_files import MAX_STATE
from ludus.store.local import LocalStorage
from ludus.store.strict_json import MAX_CONTAINERS
from ludus.store.tensors import MAX_HEADER, MAX_TENSORS
from tests.faults.small_run import contents, events, interrupt_after, train
from tests.faults.warm import WarmProcess

# On a quiet machine each takes less than 2; one that were read whole would take minutes.
SECONDS, MEGABYTES = 20.0, 400.0

Attack = Callable[["Run"], None]


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


class Run:
    """A run directory with one checkpoint, whose every file can be rewritten with matching hashes."""

    def __init__(self, path: Path, outside: Path) -> None:
        self.path = path
        self.outside = outside
        self.canary = outside.parent / "canary"
        numbers = checkpoint.numbers(LocalStorage(path))
        for number in numbers[:-1]:
            shutil.rmtree(path / f"checkpoints/{number:010d}")
        self.newest = path / f"checkpoints/{numbers[-1]:010d}"

    @property
    def pickle(self) -> bytes:
        return pickle.dumps(Canary(self.canary))

    def forge(self, name: str, data: bytes) -> None:
        """Rewrite a file of the checkpoint, and the manifest to match."""
        (self.newest / name).write_bytes(data)
        files = self.manifest()["files"]
        files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.forge_manifest(files=files)

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.newest / "manifest.json").read_text())
        return found

    def forge_manifest(self, **changes: Any) -> None:
        """Rewrite fields of the manifest, and seal it as the writer would."""
        fields = {**self.manifest(), **changes}
        fields.pop("seal")
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        fields["seal"] = hashlib.sha256(text.encode()).hexdigest()
        (self.newest / "manifest.json").write_text(json.dumps(fields))

    def forge_state(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Rewrite the state, which is then whole and well formed, and false."""
        tree = json.loads((self.newest / "state.json").read_text())
        change(tree)
        self.forge("state.json", codec.dump_json(tree))

    def link(self, name: str, target: Path) -> None:
        """Put a link in the place of a file or directory."""
        path = self.path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(target)

    def put_file_for_folder(self, name: str) -> None:
        shutil.rmtree(self.path / name)
        (self.path / name).touch()

    def pipe(self, name: str) -> None:
        """Put a named pipe, which holds a careless reader for ever, in the place of a file."""
        (self.path / name).unlink()
        os.mkfifo(self.path / name)


def header(text: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + data


def many_tensors(count: int, word: str = "data_offsets") -> bytes:
    one = f'{{"dtype":"F32","shape":[0],"{word}":[0,0]}}'
    return header(("{" + ",".join(f'"t{n}":{one}' for n in range(count)) + "}").encode())


TEN_GIGABYTES = 10 << 30
LARGE = header(
    json.dumps(
        {"a": {"dtype": "U8", "shape": [TEN_GIGABYTES], "data_offsets": [0, TEN_GIGABYTES]}}
    ).encode()
)
DEEP = b"[" * 200_000 + b"]" * 200_000
# A careless scan for the end of this string starts anew at each of its quotes.
ENDLESS_STRING = b'{"a": "' + b'\\"' * 4_000_000
MANY_LISTS = b"[" + b"[]," * 20_000_000 + b"[]]"


NEARLY_TOO_LARGE: dict[str, Callable[[], bytes]] = {
    "strings": lambda: b"[" + b'"",' * (MAX_STATE // 3 - 2) + b'""]',
    "numbers": lambda: b"[" + b"1.5," * (MAX_STATE // 4 - 2) + b"1]",
    "keys": lambda: b"{" + b",".join(b'"%06d":1' % n for n in range(MAX_STATE // 11 - 1)) + b"}",
    "lists": lambda: b"[" + b"[]," * (MAX_CONTAINERS - 2) + b"[]]",
}
NOTES = b",".join(b'"%06d":""' % n for n in range(MAX_HEADER // 12 - 3))
LONG_HEADER = header(b'{"__metadata__":{' + NOTES + b"}}")


def set_part(name: str, value: Any) -> Attack:
    return lambda run: run.forge_state(lambda tree: tree.update({name: value}))


def manifest(**changes: Any) -> Attack:
    return lambda run: run.forge_manifest(**changes)


def best(**changes: Any) -> Attack:
    return lambda run: run.forge_manifest(best={**run.manifest()["best"], **changes})


def write(name: str, data: bytes) -> Attack:
    return lambda run: (run.path / name).write_bytes(data) and None


SHA = "0" * 64

# Each of these must make a resume fail with a typed error.
REFUSED: dict[str, Attack] = {
    "a pickle as tensors": lambda run: run.forge("tensors.safetensors", run.pickle),
    "a pickle as state": lambda run: run.forge("state.json", run.pickle),
    "a pickle as manifest": lambda run: write_pickle(run, run.newest / "manifest.json"),
    "a pickle as run.json": lambda run: write_pickle(run, run.path / "run.json"),
    "a pickle as config": lambda run: write_pickle(run, run.path / "config.yaml"),
    "100k tensors": lambda run: run.forge("tensors.safetensors", many_tensors(100_000)),
    "100k tensors in disguise": lambda run: run.forge(
        "tensors.safetensors", many_tensors(100_000, "data\\u005foffsets")
    ),
    "a 10 GB shape": lambda run: run.forge("tensors.safetensors", LARGE),
    "a header beyond the file": lambda run: run.forge(
        "tensors.safetensors", struct.pack("<Q", 1 << 62) + b"{}"
    ),
    "deep state": lambda run: run.forge("state.json", DEEP),
    "deep manifest": lambda run: (run.newest / "manifest.json").write_bytes(DEEP) and None,
    "deep run.json": write("run.json", DEEP),
    "deep config": write("config.yaml", DEEP),
    "a string without end": lambda run: run.forge("state.json", ENDLESS_STRING),
    "twenty million lists": lambda run: run.forge("state.json", MANY_LISTS),
    # Each of these is only just small enough to be looked at.
    **{
        f"a state as large as may be, of {name}": lambda run, d=data: run.forge("state.json", d())
        for name, data in NEARLY_TOO_LARGE.items()
    },
    "as many tensors as may be": lambda run: run.forge(
        "tensors.safetensors", many_tensors(MAX_TENSORS)
    ),
    "as long a header as may be": lambda run: run.forge("tensors.safetensors", LONG_HEADER),
    "a key twice in the state": lambda run: run.forge("state.json", b'{"run":{},"run":{}}'),
    "NaN in the state": lambda run: run.forge("state.json", b'{"run":{"a":NaN}}'),
    "a number too large": lambda run: run.forge("state.json", b'{"run":{"a":1e999}}'),
    "an integer too long": lambda run: run.forge(
        "state.json", b'{"run":{"a":' + b"9" * 10**6 + b"}}"
    ),
    "a state that is a list": lambda run: run.forge("state.json", b"[]"),
    "a state of no parts": lambda run: run.forge("state.json", b"{}"),
    "an unknown kind of value": set_part("run", {"$": "os.system", "value": "true"}),
    "a tensor that is not there": set_part("run", {"$": "tensor", "name": "/nowhere"}),
    "a segment that is not there": set_part("run", {"$": "segment", "index": 5}),
    "a logger that is none": set_part("logger", {"scalars": 5, "texts": 1, "histograms": 2}),
    "generators that are none": set_part("random", {"torch": [1], "cuda": 5, "numpy": 1}),
    "a key twice in the manifest": lambda run: (
        (run.newest / "manifest.json").write_text(
            json.dumps(run.manifest())[:-1] + ', "number": 3}'
        )
        and None
    ),
    "a manifest out of the root": manifest(offsets={"../../outside/log.jsonl": 0}),
    "a manifest that is a list": lambda run: (
        (run.newest / "manifest.json").write_bytes(b"[]") and None
    ),
    "a link for the checkpoints": lambda run: run.link("checkpoints", run.outside),
    "a link for a checkpoint": lambda run: run.link(f"checkpoints/{run.newest.name}", run.outside),
    "a link for the state": lambda run: run.link(
        f"checkpoints/{run.newest.name}/state.json", run.outside / "file"
    ),
    "a link for the metrics": lambda run: run.link("metrics.jsonl", run.outside / "file"),
    "a link for the journal": lambda run: run.link("events.jsonl", run.outside / "file"),
    "a link for the lock": lambda run: run.link("LOCK", run.outside / "file"),
    "a link for the config": lambda run: run.link("config.yaml", run.outside / "file"),
    "a link for run.json": lambda run: run.link("run.json", run.outside / "file"),
    "a link for the models": lambda run: run.link("models", run.outside),
    "a pipe for the state": lambda run: run.pipe(f"checkpoints/{run.newest.name}/state.json"),
    "a pipe for the manifest": lambda run: run.pipe(f"checkpoints/{run.newest.name}/manifest.json"),
    "a pipe for the config": lambda run: run.pipe("config.yaml"),
    "a pipe for the journal": lambda run: run.pipe("events.jsonl"),
    "a file for the checkpoints": lambda run: run.put_file_for_folder("checkpoints"),
    "a kind that is no kind": write("run.json", b'{"format": 1, "kind": 5, "origin": "config"}'),
}

# Each of these makes the manifest one that nobody may believe.
FALSE_MANIFESTS: dict[str, Attack] = {
    "a file out of the root": manifest(
        files={"../../../outside/file": {"bytes": 4, "sha256": SHA}}
    ),
    "files that are a list": manifest(files=["state.json"]),
    "a segment out of the root": manifest(segments=["../../outside/file"]),
    "an absolute segment": manifest(segments=["/etc/passwd"]),
    "segments that are a number": manifest(segments=5),
    "segments that are numbers": manifest(segments=[1, 2]),
    "a model out of the root": manifest(models={"../../outside": SHA}),
    "an absolute model": manifest(models={"/etc": SHA}),
    "models that are a list": manifest(models=["models/best"]),
    "a best model out of the root": best(model="../../outside"),
    "a best model with dots": best(model="models/../../../outside"),
    "a best score that is text": best(score="all of them"),
    "a best that is a list": manifest(best=[1, 2]),
    "an offset out of the root": manifest(offsets={"../../outside/log.jsonl": 0}),
    "an absolute offset": manifest(offsets={"/etc/passwd": 0}),
    "an offset of the config": manifest(offsets={"config.yaml": 0}),
    "an offset of a checkpoint": manifest(offsets={"checkpoints/a.jsonl": 0}),
    "a negative offset": manifest(offsets={"metrics.jsonl": -1}),
    "an offset that is text": manifest(offsets={"metrics.jsonl": "0"}),
    "an offset that is true": manifest(offsets={"metrics.jsonl": True}),
    "offsets that are a list": manifest(offsets=[]),
    "no offsets": manifest(offsets=None),
    "a fingerprint that is a list": manifest(fingerprint=["cpu"]),
    "a fingerprint of numbers": manifest(fingerprint={"cpu": 5}),
    "reasons that are text": manifest(inexact_because="because"),
    "a field too many": manifest(run="rm -rf"),
}

# These may or may not be survived, but never with anything other than a typed error.
ENDURED: dict[str, Attack] = {
    "a link among the logs": lambda run: run.link("more.jsonl", run.outside / "file"),
    "a pickle as journal": lambda run: write_pickle(run, run.path / "events.jsonl"),
    "a pickle as metrics": lambda run: write_pickle(run, run.path / "metrics.jsonl"),
    "deep lines in the journal": write("events.jsonl", DEEP + b"\n"),
    "deep lines in the metrics": write("metrics.jsonl", DEEP + b"\n"),
    "an ending of the wrong types": write(
        "events.jsonl",
        b'{"event": "finished", "exact": [], "counters": {"epoch": 1e999}, "best": {"score": "x"}}\n',
    ),
    "an ending that is no object": write("events.jsonl", b'["finished"]\n5\nnull\n'),
    "an odd time of creation": write(
        "run.json", b'{"format": 1, "kind": "supervised", "created": "never", "origin": "config"}'
    ),
    "a link for the report": lambda run: run.link("report.html", run.outside / "file"),
    "a link left in the place of a temporary file": lambda run: run.link("a.tmp-1", run.outside),
    "a pipe for the metrics": lambda run: run.pipe("metrics.jsonl"),
}


def write_pickle(run: Run, path: Path) -> None:
    path.write_bytes(run.pickle)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    assert train(root, "run", each_epoch=interrupt_after(1)).status == "interrupted"
    return root / "run"


@pytest.fixture
def run(interrupted: Path, tmp_path: Path) -> Iterator[Run]:
    """A run to be attacked; whatever the attack, nothing outside may change and no code may run."""
    outside = tmp_path / "outside"
    (outside / "0.tmp-1").mkdir(parents=True)
    (outside / "file").write_bytes(b'{"format": 1}')
    (outside / "0.tmp-1" / "file").write_bytes(b"also mine")
    before = contents(outside)
    run = Run(Path(shutil.copytree(interrupted, tmp_path / "runs" / "run")), outside)
    yield run
    assert contents(outside) == before
    assert not run.canary.exists()


def use(run: Run, warm: WarmProcess) -> dict[str, Any]:
    code, output = warm.run("use_hostile_run", path=str(run.path))
    assert code == 0, output
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    for way, told in found.items():
        assert told["is_typed"], (way, told)
        # The clock would count what others do on this machine too.
        assert told["cpu_seconds"] < SECONDS, (way, told)
        assert told["megabytes"] < MEGABYTES, (way, told)
    return found


@pytest.mark.parametrize("attack", REFUSED)
def test_a_hostile_file_is_refused_by_a_resume_and_harms_nobody(
    attack: str, run: Run, warm: WarmProcess
) -> None:
    REFUSED[attack](run)
    assert use(run, warm)["resume"]["error"] is not None


@pytest.mark.parametrize("attack", FALSE_MANIFESTS)
def test_a_manifest_with_a_field_that_cannot_be_is_not_believed(attack: str, run: Run) -> None:
    FALSE_MANIFESTS[attack](run)
    before = contents(run.path)
    with pytest.raises(CheckpointError, match="manifest"):
        checkpoint.read_newest(LocalStorage(run.path), damaged=lambda text: None)
    assert contents(run.path) == before


@pytest.mark.parametrize("attack", ENDURED)
def test_a_hostile_file_beside_the_checkpoints_harms_nobody(
    attack: str, run: Run, warm: WarmProcess
) -> None:
    ENDURED[attack](run)
    use(run, warm)


@pytest.mark.parametrize("part", ["run", "model", "optimizer", "update", "train_data", "write_log"])
def test_a_part_given_a_false_state_says_so(part: str, run: Run, warm: WarmProcess) -> None:
    set_part(part, {"weights": None})(run)
    assert use(run, warm)["resume"]["error"] is not None


def test_the_attacks_are_made_on_a_run_that_would_otherwise_go_on(
    run: Run, warm: WarmProcess
) -> None:
    run.forge_state(lambda tree: None)
    assert [told["error"] for told in use(run, warm).values()] == [None] * 4
    assert events(run.path)[-1]["event"] == "finished"


def test_a_pickle_that_is_unpickled_does_show(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    pickle.loads(pickle.dumps(Canary(mine)))  # noqa: S301
    assert mine.exists()


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/b", "", ".", "..", ".x", "-x", "a\0b", "a\nb", "x" * 300, "é"]
)
def test_a_run_name_that_could_lead_out_of_the_root_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot name a run"):
        train(tmp_path / "root" / "deep", name)
    assert contents(tmp_path) == {}


def test_a_run_is_not_kept_behind_a_link(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runs" / "other").symlink_to(run.outside)
    with pytest.raises(RunError, match="is a link"):
        train(tmp_path / "runs", "other")
