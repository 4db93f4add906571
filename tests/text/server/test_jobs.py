"""Fine-tuning jobs of an engine: created once, changed on request, and ended exactly whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ludus.core.errors import RunError
from ludus.process.child import Child
from ludus.text.models.language_model import load_model
from ludus.text.server.engine import TextEngine
from ludus.text.server.errors import ApiError
from ludus.text.server.job_record import JobRecord
from ludus.text.server.settings import EngineSettings
from tests.text.server.asking import created, lines, tuned_bytes, when

Opened = Callable[..., TextEngine]
KEY = "0123456789abcdef" * 4


def messages(engine: TextEngine, job: JobRecord) -> list[str]:
    return [event["message"] for event in reversed(engine.jobs.store.events(job.id))]


def steps(engine: TextEngine, job: JobRecord) -> list[int]:
    events = reversed(engine.jobs.store.events(job.id))
    return [event["data"]["step"] for event in events if event["type"] == "metrics"]


def long_line() -> bytes:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b" * 2000}]
    return json.dumps({"messages": said}).encode() + b"\n"


def kill_worker_at(engine: TextEngine, *steps: int) -> Callable[[], int]:
    """Kill the worker when a job has reported these steps; return a function that counts the kills."""
    killed: list[int] = []
    wanted = [f"step:{step}" for step in steps]
    store = engine.jobs.store
    record = store.add_event

    def add_event(job_id: str, message: str, **more: object) -> None:
        record(job_id, message, **more)  # type: ignore[arg-type]
        if more.get("mark") in wanted:
            wanted.remove(str(more["mark"]))
            pid = engine.jobs.runner.worker_pid
            assert pid is not None
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    store.add_event = add_event  # type: ignore[method-assign]
    return lambda: len(killed)


@pytest.fixture(scope="module")
def expected(tiny: Path, warm_servers: object, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a job that nobody disturbed."""
    from tests.text.server.conftest import forked

    with forked(warm_servers), TextEngine(tmp_path_factory.mktemp("plain")) as engine:  # type: ignore[arg-type]
        engine.add_model("tiny", tiny)
        job = when(engine, created(engine))
        assert job.status == "succeeded"
        return tuned_bytes(engine, job)


def test_a_job_goes_through_its_states_to_a_model_that_loads(
    opened: Opened, expected: bytes
) -> None:
    engine = opened()
    job = when(engine, created(engine))
    assert job.status == "succeeded"
    assert job.tuned_model == f"ft:tiny:ludus:test:{job.id[6:14]}"
    assert job.trained_tokens
    assert messages(engine, job)[:4] == [
        f"Created fine-tuning job: {job.id}",
        f"Validating training file: {job.request.training_file}",
        "Files validated, moving job to queued state",
        "Fine-tuning job started",
    ]
    assert steps(engine, job) == list(range(1, 13))
    assert messages(engine, job)[-1] == "The job has successfully completed"
    assert tuned_bytes(engine, job) == expected
    assert load_model(engine.library.directory(job.tuned_model), name="t").context > 0
    assert engine.library.entry(job.tuned_model).origin == "tiny"
    (checkpoint,) = engine.jobs.checkpoints(job.id)
    assert checkpoint["fine_tuned_model_checkpoint"] == job.tuned_model
    assert checkpoint["step_number"] == 12
    assert list((engine.root / "runs").iterdir()) == []


def test_a_model_can_be_tuned_again_and_keeps_the_name_of_its_base(opened: Opened) -> None:
    engine = opened()
    first = when(engine, created(engine, n_epochs=1, batch_size=24))
    second = when(engine, created(engine, model=first.tuned_model, n_epochs=1, batch_size=24))
    assert second.status == "succeeded"
    assert second.tuned_model == f"ft:tiny:ludus:test:{second.id[6:14]}"


@pytest.mark.covers("002-D3")
def test_one_key_makes_one_job_even_across_a_restart(opened: Opened) -> None:
    engine = opened()
    job = created(engine, key=KEY)
    assert job.id == f"ftjob-{KEY[:24]}"
    assert created(engine, key=KEY).id == job.id
    engine.close()
    engine = opened()
    assert created(engine, key=KEY).id == job.id
    assert len(engine.jobs.store.listed()) == 1
    assert when(engine, job).status == "succeeded"
    # Its seed follows from the key as well.
    assert created(engine, key=KEY, seed=None).seed == job.seed


def test_one_idempotency_key_makes_one_job_and_only_for_the_same_request(opened: Opened) -> None:
    engine = opened()
    job = created(engine, idempotency_key="k")
    assert created(engine, idempotency_key="k").id == job.id
    with pytest.raises(ApiError, match="used before with another request"):
        created(engine, idempotency_key="k", seed=6)
    assert created(engine, idempotency_key="l").id != job.id


def test_keys_asked_for_at_once_make_one_job(opened: Opened) -> None:
    engine = opened()
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(created(engine, key=KEY).id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [f"ftjob-{KEY[:24]}"] * 8
    assert len(engine.jobs.store.listed()) == 1


def test_a_bad_file_fails_the_job_with_the_number_of_its_line(opened: Opened) -> None:
    engine = opened()
    job = when(engine, created(engine, data=lines(3) + b"{}\n"))
    assert job.status == "failed"
    assert job.error is not None
    assert job.error.code == "invalid_training_file"
    assert "line 4 has no 'messages'" in job.error.message
    assert job.request.training_file in job.error.message
    assert job.to_job().error == job.error.message
    assert messages(engine, job)[-1] == job.error.message


def test_an_example_over_the_context_fails_the_job_readably(opened: Opened) -> None:
    engine = opened()
    job = when(engine, created(engine, data=lines(3) + long_line()))
    assert job.status == "failed"
    assert job.error is not None
    assert "context" in job.error.message
    assert "Traceback" not in job.error.message


@pytest.mark.covers("002-D3")
@pytest.mark.parametrize("step", [7, 12])
def test_a_job_whose_worker_is_killed_ends_with_the_same_bytes(
    step: int, opened: Opened, expected: bytes
) -> None:
    engine = opened()
    num_kills = kill_worker_at(engine, step)
    job = when(engine, created(engine))
    assert job.status == "succeeded"
    assert num_kills() == 1
    assert tuned_bytes(engine, job) == expected
    # Steps that are repeated are not reported twice.
    assert steps(engine, job) == list(range(1, 13))
    assert any("started again" in message for message in messages(engine, job))


def test_a_job_whose_worker_dies_again_and_again_fails_with_the_reason(
    opened: Opened, expected: bytes
) -> None:
    engine = opened(EngineSettings(max_crashes=2))
    start, started = engine.jobs.runner.start_worker, []

    def start_dying() -> Child:
        child = start()
        started.append(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        return child

    engine.jobs.runner.start_worker = start_dying
    job = when(engine, created(engine))
    assert job.status == "failed"
    assert len(started) == 2
    assert job.error is not None
    assert "its process ended 2 times without taking a step" in job.error.message
    assert "SIGKILL" in job.error.message
    # The next job has a worker again.
    engine.jobs.runner.start_worker = start
    assert when(engine, created(engine, n_epochs=1)).status == "succeeded"
    # What killed it is mended, and the job itself goes on.
    assert engine.jobs.resume(job.id).error is None
    job = when(engine, job)
    assert job.status == "succeeded"
    assert tuned_bytes(engine, job) == expected


def test_a_job_that_gets_on_is_never_given_up(opened: Opened, expected: bytes) -> None:
    engine = opened(EngineSettings(max_crashes=2))
    num_kills = kill_worker_at(engine, 2, 5, 9)
    job = when(engine, created(engine))
    assert job.status == "succeeded"
    assert num_kills() == 3
    assert tuned_bytes(engine, job) == expected


@pytest.mark.parametrize("at", ["queued", "running"])
def test_a_closed_engine_goes_on_with_its_jobs_when_it_is_opened_again(
    at: str, opened: Opened, expected: bytes
) -> None:
    engine = opened()
    job = created(engine)
    when(engine, job, not_any=("validating_files",) + (("queued",) if at == "running" else ()))
    engine.close()
    engine = opened()
    assert when(engine, job).status == "succeeded"
    assert tuned_bytes(engine, job) == expected


def test_a_job_is_paused_and_resumed_exactly(opened: Opened, expected: bytes) -> None:
    engine = opened()
    job = created(engine)
    when(engine, job, not_any=("validating_files", "queued"))
    assert engine.jobs.pause(job.id).status == "pausing"
    assert engine.jobs.pause(job.id).status in ("pausing", "paused")
    assert when(engine, job, not_any=("pausing",)).status == "paused"
    assert job.tuned_model not in engine.library
    engine.close()
    engine = opened()
    assert engine.jobs.store.get(job.id).status == "paused"
    engine.jobs.resume(job.id)
    assert when(engine, job).status == "succeeded"
    assert tuned_bytes(engine, job) == expected


def test_a_job_that_was_being_paused_when_the_engine_closed_is_paused(opened: Opened) -> None:
    engine = opened()
    job = created(engine, n_epochs=1000)
    when(engine, job, not_any=("validating_files", "queued"))
    engine.jobs.store.change(job.id, of={"running"}, status="pausing")
    engine.close()
    engine = opened()
    assert engine.jobs.store.get(job.id).status == "paused"
    engine.jobs.cancel(job.id)


def test_a_queued_job_waits_while_it_is_paused(opened: Opened) -> None:
    engine = opened()
    first, second = created(engine), created(engine)
    when(engine, second, not_any=("validating_files",))
    engine.jobs.pause(second.id)
    assert when(engine, first).status == "succeeded"
    assert engine.jobs.store.get(second.id).status == "paused"
    engine.jobs.resume(second.id)
    assert when(engine, second).status == "succeeded"


def test_nothing_is_left_of_a_job_that_is_cancelled_while_it_is_paused(opened: Opened) -> None:
    engine = opened()
    job = created(engine)
    when(engine, job, not_any=("validating_files", "queued"))
    engine.jobs.pause(job.id)
    assert when(engine, job, not_any=("running", "pausing")).status == "paused"
    run = engine.root / "runs" / job.id
    assert run.is_dir()
    engine.jobs.cancel(job.id)
    assert not run.exists()
    # Nor of one whose server was killed before it was deleted.
    run.mkdir()
    engine.close()
    opened()
    assert not run.exists()


@pytest.mark.covers("002-D2")
def test_a_running_job_is_cancelled_at_once_and_leaves_no_model(opened: Opened) -> None:
    engine = opened()
    job = created(engine, n_epochs=1000)
    when(engine, job, not_any=("validating_files", "queued"))
    assert engine.jobs.cancel(job.id).status == "cancelled"
    assert engine.jobs.cancel(job.id).status == "cancelled"
    # The next job shows that the worker has stopped.
    assert when(engine, created(engine, n_epochs=1)).status == "succeeded"
    assert job.tuned_model not in engine.library
    assert job.to_job().status == "pending"
    assert engine.jobs.store.get(job.id).to_job().status == "cancelled"


def test_an_ended_job_cannot_be_changed(opened: Opened) -> None:
    engine = opened()
    job = when(engine, created(engine, data=b"x"))
    for change in (engine.jobs.cancel, engine.jobs.pause, engine.jobs.resume):
        with pytest.raises(ApiError, match="has the status failed, so it cannot be"):
            change(job.id)


def test_a_job_keeps_its_training_file_though_the_upload_is_deleted(opened: Opened) -> None:
    engine = opened()
    job = created(engine)
    with contextlib.suppress(ApiError):
        engine.files.delete(job.request.training_file)
    assert when(engine, job).status == "succeeded"


def test_a_model_with_open_jobs_is_not_deleted_and_a_base_never(opened: Opened) -> None:
    engine = opened()
    first = when(engine, created(engine, n_epochs=1))
    second = created(engine, model=first.tuned_model, n_epochs=1000)
    with pytest.raises(ApiError, match=f"is being tuned by the job {second.id}"):
        engine.delete_model(first.tuned_model)
    engine.jobs.cancel(second.id)
    engine.delete_model(first.tuned_model)
    assert engine.library.names() == ["tiny"]
    with pytest.raises(ApiError, match="was not tuned here") as caught:
        engine.delete_model("tiny")
    assert caught.value.status == 403


def test_two_engines_on_one_root_are_refused(opened: Opened, root: Path) -> None:
    opened()
    with pytest.raises(RunError, match="is in use by"):
        TextEngine(root).__enter__()
