"""Fault 5: damaged checkpoints are found out, skipped aloud, and never trusted or forgotten."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.core.errors import CheckpointError, StorageError
from ludus.session.resumption import put_back
from ludus.store import checkpoint, directory
from ludus.store.local import LocalStorage
from tests.faults.small_run import contents, ending, events, interrupt_after, interrupt_now, train

Damage = Callable[[Path], None]

FILES = ("state.json", "tensors.safetensors", "manifest.json")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted after its second epoch, with three checkpoints."""
    root = tmp_path_factory.mktemp("interrupted")
    assert train(root, "run", each_epoch=interrupt_after(2)).status == "interrupted"
    assert len(checkpoints(root / "run")) == 3
    return root / "run"


@pytest.fixture
def run(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoint directories, the newest first."""
    return [
        run / f"checkpoints/{number:010d}"
        for number in reversed(checkpoint.numbers(LocalStorage(run)))
    ]


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    place = random.Random(len(data)).randrange(len(data))
    data[place] ^= 1 << (place % 8)
    path.write_bytes(data)


def add_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def add_to_start(path: Path) -> None:
    path.write_bytes(b"{}\n" + path.read_bytes())


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def lose_last_page(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-512] + bytes(min(512, len(data))))


def change_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def swap_files(name: str) -> Damage:
    def swap(newest: Path) -> None:
        other = checkpoints(newest.parents[1])[1] / name
        data = (newest / name).read_bytes()
        (newest / name).write_bytes(other.read_bytes())
        other.write_bytes(data)

    return swap


def take_manifest_of_another(newest: Path) -> None:
    shutil.copy(checkpoints(newest.parents[1])[1] / "manifest.json", newest)


def take_another_for_the_newest(newest: Path) -> None:
    other = checkpoints(newest.parents[1])[1]
    shutil.rmtree(newest)
    shutil.copytree(other, newest)


def replace_by(folder: Path, make: Callable[[Path], None]) -> None:
    shutil.rmtree(folder)
    make(folder)


def best_model(newest: Path) -> Path:
    manifest = json.loads((newest / "manifest.json").read_text())
    found: Path = newest.parents[1] / manifest["best"]["model"]
    return found


BEST_DAMAGES: dict[str, Damage] = {
    "a bit of the best model flipped": lambda m: flip_bit(m / "weights.safetensors"),
    "a byte added to the best model": lambda m: add_byte(m / "weights.safetensors"),
    "a bit of its note flipped": lambda m: flip_bit(m / "model.json"),
    "the best model missing": shutil.rmtree,
}

DAMAGES: dict[str, Damage] = {
    **{f"a bit of {name} flipped": lambda c, n=name: flip_bit(c / n) for name in FILES},
    **{f"{name} cut short": lambda c, n=name: truncate(c / n) for name in FILES},
    **{f"{name} emptied": lambda c, n=name: empty(c / n) for name in FILES},
    **{f"{name} all zeros": lambda c, n=name: fill_with_zeros(c / n) for name in FILES},
    **{f"{name} lost its end": lambda c, n=name: lose_last_page(c / n) for name in FILES},
    **{f"{name} missing": lambda c, n=name: (c / n).unlink() for name in FILES},
    "another file in it": lambda c: (c / "more.json").write_bytes(b"{}"),
    "manifest of another": take_manifest_of_another,
    "copied from another": take_another_for_the_newest,
    "a number that is not its own": lambda c: change_manifest(c, number=7),
    "a format of the future": lambda c: change_manifest(c, format=3, files="elsewhere"),
    "an empty directory": lambda c: replace_by(c, Path.mkdir),
    "a file where a directory was": lambda c: replace_by(c, Path.touch),
    **{
        f"{name}, and its copy": lambda c, n=name: [
            BEST_DAMAGES[n](path) for path in (best_model(c), c.parents[1] / "models/best")
        ]
        for name in BEST_DAMAGES
    },
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_skipped_aloud_and_the_run_ends_with_the_same_bytes(
    name: str, run: Path, right_ending: dict[str, Any]
) -> None:
    newest, older = checkpoints(run)[0], checkpoints(run)[1:]
    before = {folder: contents(folder) for folder in older}
    DAMAGES[name](newest)
    result = train(run.parent, "run")
    assert result.status == "finished"
    assert result.exact
    told = [event for event in events(run) if event["event"] == "checkpoint_damaged"]
    assert len(told) == 1
    assert str(int(newest.name)) in told[0]["reason"]
    assert ending(run) == right_ending
    assert [event["boundary"] for event in events(run) if event["event"] == "resumed"] == [
        int(next(iter(before)).name)
    ]


@pytest.mark.parametrize("name", BEST_DAMAGES)
def test_a_damaged_best_model_comes_back_from_the_copy_for_people(
    name: str, run: Path, right_ending: dict[str, Any]
) -> None:
    newest = checkpoints(run)[0]
    model = best_model(newest)
    whole = contents(model)
    BEST_DAMAGES[name](model)
    assert train(run.parent, "run", each_step=interrupt_now).status == "interrupted"
    assert contents(model) == whole
    told = [event["event"] for event in events(run)]
    assert told.count("best_model_restored") == 1
    assert "checkpoint_damaged" not in told
    result = train(run.parent, "run")
    assert result.exact
    assert ending(run) == right_ending


@pytest.mark.parametrize("name", BEST_DAMAGES)
def test_a_damaged_copy_for_people_is_replaced_and_costs_nothing(
    name: str, run: Path, right_ending: dict[str, Any]
) -> None:
    BEST_DAMAGES[name](run / "models/best")
    assert train(run.parent, "run").exact
    assert ending(run) == right_ending


def test_the_copy_for_people_is_whole_as_soon_as_the_run_is_taken_up(run: Path) -> None:
    storage = LocalStorage(run)
    saved = checkpoint.read_newest(storage, damaged=pytest.fail)
    assert saved is not None
    whole = contents(run / "models/best")
    add_byte(run / "models/best/weights.safetensors")
    put_back(storage, saved, keep_last=3, tell=pytest.fail)
    assert contents(run / "models/best") == whole


@pytest.mark.parametrize("name", BEST_DAMAGES)
def test_a_best_model_that_all_checkpoints_share_costs_the_best_model_and_not_the_run(
    name: str, run: Path
) -> None:
    models = {best_model(folder) for folder in checkpoints(run)} | {run / "models/best"}
    for model in models:
        BEST_DAMAGES[name](model)
    result = train(run.parent, "run")
    assert result.status == "finished"
    assert "best model was damaged and forgotten" in result.inexact_because[0]
    assert len(result.inexact_because) == 1
    assert result.best is not None
    told = [event for event in events(run) if event["event"] == "best_model_lost"]
    assert len(told) == 1
    storage = LocalStorage(run)
    saved = checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    assert not saved.manifest["exact"]
    assert saved.lost_models == ()


def test_best_models_deleted_during_the_run_cost_no_checkpoint(run: Path) -> None:
    def delete(trainer: Any) -> None:
        if trainer.epoch == 2:
            for model in (run / "models").iterdir():
                shutil.rmtree(model)
        interrupt_now(trainer)

    before = checkpoints(run)[0]
    assert train(run.parent, "run", each_step=delete).status == "interrupted"
    assert checkpoints(run)[0] > before
    told = [event["event"] for event in events(run)]
    assert told.count("best_model_lost") == 1
    assert "checkpoint_failed" not in told
    result = train(run.parent, "run")
    assert result.status == "finished"
    assert "best model was damaged and forgotten" in result.inexact_because[0]


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors"])
def test_files_swapped_between_two_checkpoints_cost_both_and_no_more(
    name: str, run: Path, right_ending: dict[str, Any]
) -> None:
    swap_files(name)(checkpoints(run)[0])
    assert train(run.parent, "run").status == "finished"
    told = [event for event in events(run) if event["event"] == "checkpoint_damaged"]
    assert len(told) == 2
    assert ending(run) == right_ending


def test_no_byte_of_a_manifest_can_change_unseen(run: Path) -> None:
    storage, path = LocalStorage(run), checkpoints(run)[0] / "manifest.json"
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(CheckpointError):
            checkpoint.verify(storage, int(path.parent.name))
    path.write_bytes(data)
    checkpoint.verify(storage, int(path.parent.name))


def test_damaged_checkpoints_never_crowd_out_the_good_ones(run: Path) -> None:
    newest, second, third = checkpoints(run)
    flip_bit(newest / "tensors.safetensors")
    flip_bit(second / "tensors.safetensors")
    settings = {"settings.checkpoint.keep_last": 2, "settings.checkpoint.every_stages": 1}
    assert train(run.parent, "run", each_step=interrupt_now, **settings).status == "interrupted"
    # It has saved below the numbers of the damaged ones, and collected since.
    found = checkpoint.read_newest(LocalStorage(run), damaged=pytest.fail)
    assert found is not None
    assert int(third.name) < found.number < int(newest.name)
    asides = {one.name for one in (run / "checkpoints").glob("*.aside-*")}
    assert asides == {f"{second.name}.aside-0", f"{newest.name}.aside-0"}


def test_one_that_was_damaged_long_ago_does_not_stop_the_collector(
    run: Path, right_ending: dict[str, Any]
) -> None:
    empty(checkpoints(run)[2] / "manifest.json")
    assert train(run.parent, "run").status == "finished"
    assert [event for event in events(run) if event["event"] == "checkpoint_failed"] == []
    assert len(checkpoints(run)) == 3
    assert ending(run) == right_ending


def test_when_all_checkpoints_are_damaged_the_run_refuses_and_changes_nothing(run: Path) -> None:
    for folder in checkpoints(run):
        flip_bit(folder / "tensors.safetensors")
    before = contents(run)
    with pytest.raises(CheckpointError, match="none of the 3 checkpoints"):
        train(run.parent, "run")
    after = contents(run)
    for journal in ("events.jsonl", "LOCK"):
        before.pop(journal), after.pop(journal)
    assert after == before


def test_a_shortened_log_is_an_error_that_says_which_file(run: Path) -> None:
    truncate(run / "metrics.jsonl")
    with pytest.raises(
        Exception, match=r"metrics\.jsonl has \d+ bytes, but the checkpoint saw"
    ) as e:
        train(run.parent, "run")
    assert type(e.value).__name__ == "StorageError"


def test_a_log_that_a_killed_resume_had_emptied_is_no_loss(
    tmp_path: Path, right_ending: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    assert train(tmp_path, "run", each_step=interrupt_now).status == "interrupted"
    seen = json.loads((checkpoints(run)[0] / "manifest.json").read_text())
    assert seen["offsets"]["metrics.jsonl"] == 0
    # A resume cuts the logs back before it opens them; killed in between it leaves none.
    for name in ("metrics.jsonl", "timing.jsonl"):
        (run / name).unlink()
    assert train(tmp_path, "run").status == "finished"
    assert ending(run) == right_ending


def test_a_lost_log_that_promises_nothing_is_told_and_begins_anew(
    run: Path, right_ending: dict[str, Any]
) -> None:
    (run / "timing.jsonl").unlink()
    assert train(run.parent, "run").status == "finished"
    assert [event["event"] for event in events(run)].count("log_lost") == 1
    assert ending(run) == right_ending


def test_half_a_line_at_the_end_of_the_journal_does_not_spoil_the_next(run: Path) -> None:
    with (run / "events.jsonl").open("ab") as file:
        file.write(b'{"time": 1, "event": "chec')
    train(run.parent, "run")
    told = [event["event"] for event in events(run)][-4:]
    assert told == ["resumed", "evaluated_weights", "first_checkpoint", "finished"]


USERS_FILES = [
    *("notes.csv", "my thoughts.csv", "mine.jsonl", "draft.tmp-1", "old.trash-7", "run.json.bak"),
    *("checkpoints/mine.tmp-1", "checkpoints/0000000001.bak", "events/mine.txt"),
    *("models/best-of-all/weights.safetensors", "models/best-9999999999-mine/a"),
    *("models/mine.tmp-1/notes.txt", "models/a.tmp-1", "segments/mine.safetensors"),
]


def test_files_of_the_users_own_in_the_run_directory_survive_as_they_are(
    run: Path, right_ending: dict[str, Any]
) -> None:
    for name in USERS_FILES:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    assert train(run.parent, "run").exact
    found = contents(run)
    assert [found.get(name) for name in USERS_FILES] == [name.encode() for name in USERS_FILES]
    assert ending(run) == right_ending


@pytest.mark.parametrize("damage", [fill_with_zeros, flip_bit, add_to_start])
def test_a_changed_log_is_an_error_that_says_which_file_before_anything_is_written(
    damage: Damage, run: Path
) -> None:
    damage(run / "metrics.jsonl")
    before = contents(run)
    with pytest.raises(StorageError, match=r"metrics\.jsonl has changed within the \d+ bytes"):
        train(run.parent, "run")
    after = contents(run)
    for name in ("LOCK", "events.jsonl"):
        before.pop(name), after.pop(name)
    assert after == before


def test_a_changed_log_that_promises_nothing_is_put_aside(
    run: Path, right_ending: dict[str, Any]
) -> None:
    fill_with_zeros(run / "timing.jsonl")
    assert train(run.parent, "run").status == "finished"
    assert [event["event"] for event in events(run)].count("log_lost") == 1
    assert (run / "timing.jsonl.aside-0").exists()
    assert ending(run) == right_ending


def test_a_journal_of_any_length_is_read(run: Path, right_ending: dict[str, Any]) -> None:
    line = json.dumps({"event": "note", "text": "x" * 1000}).encode() + b"\n"
    with (run / "events.jsonl").open("ab") as file:
        for _ in range(70):
            file.write(line * 1000)
        file.write(b"y" * (3 << 20) + b"\n")
    assert (run / "events.jsonl").stat().st_size > 64 << 20
    assert directory.had_checkpoints(LocalStorage(run))
    assert (directory.last_ending(LocalStorage(run)) or {})["event"] == "interrupted"
    assert train(run.parent, "run").exact
    assert ending(run) == right_ending


def test_a_checkpoint_that_cannot_be_read_is_skipped_like_a_damaged_one(
    run: Path, right_ending: dict[str, Any]
) -> None:
    """Whoever is not root; for root it is a file that the system refuses to read."""
    newest = checkpoints(run)[0]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for path in [run.parent, *run.parent.rglob("*")]:
                os.chown(path, 65534, 65534)
            for parent in run.parents:
                with contextlib.suppress(OSError):
                    os.chmod(parent, parent.stat().st_mode | 0o011)
            os.chmod(newest, 0)
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            told: list[str] = []
            saved = checkpoint.read_newest(LocalStorage(run), damaged=told.append)
            assert saved is not None
            assert saved.number < int(newest.name)
            assert len(told) == 1
            assert "cannot be read" in told[0]
            checkpoint.set_newer_aside(LocalStorage(run), saved.number)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.covers("000-D5")
@pytest.mark.parametrize("has_journal", [True, False])
def test_a_run_whose_checkpoints_were_deleted_is_never_begun_afresh(
    has_journal: bool, tmp_path: Path
) -> None:
    import shutil

    from ludus.core.errors import CheckpointError
    from tests.conftest import modules_in

    toy = modules_in("contracts/trainers")["toy_fused"]
    toy.make().fit(root=str(tmp_path), name="run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    if not has_journal:
        (tmp_path / "run" / "events.jsonl").unlink()
    with pytest.raises(CheckpointError, match="are gone"):
        toy.make().fit(root=str(tmp_path), name="run", resume=True)
