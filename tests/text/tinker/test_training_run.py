"""Each request to a training run is done once and in order, wherever the server is killed."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ludus.store.local import LocalStorage
from ludus.text.models.language_model import load_model
from ludus.text.models.library import ModelLibrary
from ludus.text.server.tinker import saved_weights, training_run
from ludus.text.server.tinker.operations import Operation
from ludus.text.server.tinker.outcomes import Failure, ForwardOutput
from ludus.text.server.tinker.requests import RequestRefused
from ludus.text.server.tinker.training_run import TrainingRun
from tests.text.tinker.support import (
    ADAM,
    batch,
    do_all,
    logprobs,
    make_library,
    open_run,
    program,
    value,
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ModelLibrary:
    return make_library(tmp_path_factory.mktemp("library"))


def digest_of(root: Path) -> dict[str, str]:
    """Return the hash of each file of all saved weights."""
    found = {}
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        if path.is_file() and "weights" in str(place):
            found[str(place)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


End = tuple[list[dict[str, Any]], dict[str, str]]


def end_of(run: TrainingRun, root: Path) -> End:
    """Return all outcomes, and the hashes of all saved weights."""
    outcomes = [run.outcome(one.seq_id).result(timeout=0) for one in program()]
    return [outcome.to_json() for outcome in outcomes], digest_of(root)


def ended(root: Path, library: ModelLibrary) -> End:
    """Send the whole program, as a client does that knows nothing of what came before; return how it ends."""
    run = open_run(root, library)
    do_all(run)
    for operation in program():
        run.accept(operation)
        do_all(run)
    return end_of(run, root)


@pytest.fixture(scope="module")
def unbroken(library: ModelLibrary, tmp_path_factory: pytest.TempPathFactory) -> End:
    return ended(tmp_path_factory.mktemp("unbroken"), library)


def test_a_repeated_request_changes_nothing_and_has_the_same_outcome(
    library: ModelLibrary, tmp_path: Path, unbroken: End
) -> None:
    run = open_run(tmp_path, library)
    for operation in program():
        run.accept(operation)
        run.accept(operation)
        do_all(run)
        first = run.outcome(operation.seq_id).result(timeout=0)
        run.accept(operation)
        assert not run.is_ready
        assert run.outcome(operation.seq_id).result(timeout=0) is first
    assert end_of(run, tmp_path) == unbroken


def test_requests_that_overtake_others_wait_for_them(
    library: ModelLibrary, tmp_path: Path, unbroken: End
) -> None:
    run = open_run(tmp_path, library)
    last, *others = reversed(program())
    run.accept(last)
    do_all(run)
    assert not run.outcome(last.seq_id).done()
    for operation in others:
        run.accept(operation)
    do_all(run)
    assert end_of(run, tmp_path) == unbroken


def test_a_number_is_not_given_to_two_requests(library: ModelLibrary, tmp_path: Path) -> None:
    run = open_run(tmp_path, library)
    run.accept(Operation(1, "forward_backward", batch("hello")))
    other = Operation(1, "forward_backward", batch("jello"))
    with pytest.raises(RequestRefused, match=r"seq_id 1 .* another request"):
        run.accept(other)
    do_all(run)
    with pytest.raises(RequestRefused, match=r"seq_id 1 .* another request"):
        run.accept(other)


def test_a_request_far_ahead_is_refused(library: ModelLibrary, tmp_path: Path) -> None:
    run = open_run(tmp_path, library)
    with pytest.raises(RequestRefused, match=r"seq_id 5000 .* without gaps"):
        run.accept(Operation(5000, "optim_step", ADAM))
    with pytest.raises(RequestRefused, match="never sent a request 5000"):
        run.outcome(5000)


class Killed(BaseException):
    """The process ends here."""


class Mortal(LocalStorage):
    """A disk under a process that is killed before or after some write; then nothing more is written."""

    left: ClassVar[int] = 0
    is_dead: ClassVar[bool] = False

    @classmethod
    def pass_(cls) -> None:
        cls.left -= 1
        if cls.is_dead or cls.left == 0:
            cls.is_dead = True
            raise Killed

    def write(self, name: str, data: bytes) -> None:
        self.pass_()
        super().write(name, data)
        self.pass_()

    def commit(
        self, name: str, fill: Callable[[Path], None], *, step: Callable[[str], None]
    ) -> None:
        def passed(point: str) -> None:
            self.pass_()
            step(point)

        super().commit(name, fill, step=passed)
        self.pass_()

    def remove(self, name: str) -> None:
        self.pass_()
        super().remove(name)
        self.pass_()


def killed_at(number: int, root: Path, library: ModelLibrary) -> bool:
    """Send the program to a server that is killed at a write; return whether it came to that."""
    Mortal.left, Mortal.is_dead = number, False
    try:
        run = open_run(root, library, kind=Mortal)
        for operation in program():
            run.accept(operation)
            do_all(run)
    except Killed:
        return True
    return False


def check_kills(
    step: int, library: ModelLibrary, root: Path, monkeypatch: pytest.MonkeyPatch, unbroken: object
) -> None:
    monkeypatch.setattr(training_run, "_MOST_OPERATIONS", 4)
    # Snapshots are written through storage of their own, which must be as mortal.
    monkeypatch.setattr("ludus.store.state_folder.LocalStorage", Mortal)
    for number in itertools.count(1, step):
        place = root / str(number)
        if not killed_at(number, place, library):
            break
        with monkeypatch.context() as alive:
            alive.setattr("ludus.store.state_folder.LocalStorage", LocalStorage)
            assert ended(place, library) == unbroken, f"killed at write {number}"
    assert number > 60


def test_a_run_killed_at_some_writes_ends_with_the_same_bytes(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbroken: object
) -> None:
    check_kills(9, library, tmp_path, monkeypatch, unbroken)


@pytest.mark.slow
def test_a_run_killed_at_any_write_ends_with_the_same_bytes(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbroken: object
) -> None:
    check_kills(1, library, tmp_path, monkeypatch, unbroken)


def test_outcomes_are_the_same_after_a_restart(library: ModelLibrary, tmp_path: Path) -> None:
    run = open_run(tmp_path, library)
    for operation in program():
        run.accept(operation)
    do_all(run)
    before = [run.outcome(one.seq_id).result(timeout=0).to_json() for one in program()]
    again = open_run(tmp_path, library)
    do_all(again)
    after = [again.outcome(one.seq_id).result(timeout=0).to_json() for one in program()]
    assert after == before


def test_what_was_loaded_is_never_loaded_again(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last snapshot before the load is then after the save.
    monkeypatch.setattr(training_run, "_MOST_OPERATIONS", 8)
    run = open_run(tmp_path, library)
    *others, last = program()
    for operation in others:
        run.accept(operation)
    do_all(run)
    shutil.rmtree(tmp_path / "session-a.train.0/weights/half")
    found = []
    for server in (run, open_run(tmp_path, library)):
        server.accept(last)
        do_all(server)
        found.append(logprobs(server, last.seq_id))
    assert found[0] == found[1]


def test_requests_that_a_snapshot_holds_are_deleted_after_a_kill(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_run, "_MOST_OPERATIONS", 1)
    run = open_run(tmp_path, library)
    run.accept(Operation(1, "forward", batch("hi")))
    kept = tmp_path / "session-a.train.0/ops/0000000001.json"
    content = kept.read_bytes()
    do_all(run)
    kept.write_bytes(content)
    again = open_run(tmp_path, library)
    assert not again.is_ready
    assert not kept.exists()


def test_snapshots_and_requests_on_disk_stay_few(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_run, "_MOST_OPERATIONS", 8)
    monkeypatch.setattr("ludus.text.server.tinker.kept_outcomes._MOST", 5)
    run = open_run(tmp_path, library)
    for seq_id in range(1, 28):
        run.accept(Operation(seq_id, "forward", batch("hi")))
        do_all(run)
    folder = tmp_path / "session-a.train.0"
    assert [path.name for path in (folder / "snapshots").iterdir()] == ["0000000024"]
    assert len(list((folder / "ops").iterdir())) == 3
    with pytest.raises(RequestRefused, match=r"request 1 .* no longer kept"):
        run.outcome(1)
    run.accept(Operation(1, "forward", batch("hi")))
    assert not run.is_ready


def test_a_step_needs_every_batch_that_was_sent_for_it(
    library: ModelLibrary, tmp_path: Path
) -> None:
    run = open_run(tmp_path, library)
    refused = Failure("datum 0.advantages is nan")
    operations = [
        Operation(1, "forward", batch("hello")),
        Operation(2, "forward_backward", batch("hello")),
        Operation(3, "forward_backward", {}, refused),
        Operation(4, "optim_step", ADAM),
        Operation(5, "optim_step", ADAM),
        Operation(6, "forward", batch("hello")),
    ]
    for operation in operations:
        run.accept(operation)
    do_all(run)
    failed = [run.outcome(number).result(timeout=0) for number in (3, 4, 5)]
    assert failed[0] == refused
    assert isinstance(failed[1], Failure)
    assert "since the last step failed" in failed[1].error
    assert isinstance(failed[2], Failure)
    assert "there is no gradient" in failed[2].error
    assert logprobs(run, 6) == logprobs(run, 1)


def test_a_step_that_would_not_be_finite_is_not_taken(
    library: ModelLibrary, tmp_path: Path
) -> None:
    run = open_run(tmp_path, library)
    run.accept(Operation(1, "forward", batch("hello")))
    run.accept(Operation(2, "forward_backward", batch("hello")))
    run.accept(Operation(3, "optim_step", {**ADAM, "learning_rate": 1e38, "eps": 1e-30}))
    run.accept(Operation(4, "forward", batch("hello")))
    huge = batch("hello", weights=[1e38] * 4)
    run.accept(Operation(5, "forward_backward", huge))
    run.accept(Operation(6, "optim_step", ADAM))
    run.accept(Operation(7, "forward", batch("hello")))
    do_all(run)
    refused = run.outcome(6).result(timeout=0)
    assert isinstance(refused, Failure)
    assert "would not be finite" in refused.error
    assert logprobs(run, 7) == logprobs(run, 4)


def test_a_failure_of_the_machine_is_never_tried_again(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(tmp_path, library)

    def fail(*args: object, **named: object) -> ForwardOutput:
        raise MemoryError("not enough")

    with monkeypatch.context() as broken:
        broken.setattr(
            "ludus.text.server.tinker.training_model.TrainingModel.forward_backward", fail
        )
        run.accept(Operation(1, "forward_backward", batch("hello")))
        do_all(run)
    again = open_run(tmp_path, library)
    again.accept(Operation(2, "optim_step", ADAM))
    do_all(again)
    outcome = again.outcome(1).result(timeout=0)
    assert isinstance(outcome, Failure)
    assert (outcome.category, "not enough" in outcome.error) == ("server", True)
    step = again.outcome(2).result(timeout=0)
    assert isinstance(step, Failure)
    assert "since the last step failed" in step.error


def test_saved_weights_are_models_that_load(library: ModelLibrary, tmp_path: Path) -> None:
    run = open_run(tmp_path, library)
    for operation in program():
        run.accept(operation)
    do_all(run)
    folder = tmp_path / "session-a.train.0"
    for place in ("weights/half", "sampler_weights/ephemeral-0000000005"):
        assert load_model(folder / place, name="saved").context == 48
    assert value(run, 4)["path"] == "tinker://session-a:train:0/weights/half"
    assert value(run, 5)["sampling_session_id"] == "session-a:sample:0"


def test_weights_that_are_there_are_replaced_only_if_asked(
    library: ModelLibrary, tmp_path: Path
) -> None:
    run = open_run(tmp_path, library)
    body = {"path": "one", "overwrite": False, "user_metadata": None}
    run.accept(Operation(1, "save_weights", body))
    run.accept(Operation(2, "save_weights", body))
    run.accept(Operation(3, "save_weights", {**body, "overwrite": True}))
    run.accept(Operation(4, "save_weights", {**body, "path": "../out"}))
    do_all(run)
    assert value(run, 3) == value(run, 1)
    for number, words in ((2, "choose another name"), (4, "cannot be named '../out'")):
        failure = run.outcome(number).result(timeout=0)
        assert isinstance(failure, Failure)
        assert words in failure.error


def test_only_the_last_used_unnamed_weights_are_kept(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_weights, "_MOST_EPHEMERAL", 3)
    run = open_run(tmp_path, library)
    first = "tinker://session-a:train:0/sampler_weights/ephemeral-0000000001"
    run._saved._last_use = lambda path: int(path == first)
    for number in range(1, 7):
        body = {"path": None, "sampling_session_seq_id": number, "user_metadata": None}
        run.accept(Operation(number, "save_weights_for_sampler", body))
        do_all(run)
    names = sorted(path.name for path in (tmp_path / "session-a.train.0/sampler_weights").iterdir())
    assert [int(name.partition("-")[2]) for name in names] == [1, 5, 6]
