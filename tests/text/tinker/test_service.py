"""Sessions, runs and sampling sessions without HTTP: numbered once, found again after a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ludus.text.models.library import ModelLibrary
from ludus.text.server.loaded_models import LoadedModels
from ludus.text.server.settings import EngineSettings
from ludus.text.server.tinker import requests, work
from ludus.text.server.tinker.outcomes import JsonOutput, Outcome, SampleOutput
from ludus.text.server.tinker.places import LibraryWithSaved
from ludus.text.server.tinker.requests import RequestRefused, read_body
from ludus.text.server.tinker.service import RUNS, TinkerService
from tests.text.tinker.support import make_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ModelLibrary:
    return make_library(tmp_path_factory.mktemp("library"))


@contextmanager
def opened(root: Path, library: ModelLibrary) -> Iterator[TinkerService]:
    whole = LibraryWithSaved(library.root, root / RUNS)
    models = LoadedModels(whole, EngineSettings())
    service = TinkerService(root, whole, models)
    try:
        yield service
    finally:
        service.close()
        models.close()


def new_model(service: TinkerService, *, number: int = 0, session: str = "one", **more: Any) -> str:
    session_id = service.registry.new_session(session)
    body = {"session_id": session_id, "model_seq_id": number, "base_model": "tiny", **more}
    request_id = service.create_model(read_body(requests.CreateModel, body))
    return str(value(service, request_id)["model_id"])


def outcome(service: TinkerService, request_id: str) -> Outcome:
    return service.outcome(request_id).result(timeout=60)


def value(service: TinkerService, request_id: str) -> dict[str, Any]:
    found = outcome(service, request_id)
    assert isinstance(found, JsonOutput), found
    return dict(found.value)


def trained(service: TinkerService, model_id: str, seq_id: int) -> dict[str, Any]:
    """Train a step; return its metrics."""
    tensor = {"data": [2, 3], "dtype": "int64", "shape": [2]}
    datum = {
        "model_input": {"chunks": [{"tokens": [1, 2]}]},
        "loss_fn_inputs": {"target_tokens": tensor},
    }
    batch = {"data": [datum], "loss_fn": "cross_entropy"}
    body = {"model_id": model_id, "seq_id": seq_id, "forward_backward_input": batch}
    service.forward_backward(read_body(requests.ForwardBackward, body))
    step = {"model_id": model_id, "seq_id": seq_id + 1, "adam_params": {"learning_rate": 0.01}}
    request_id = service.optim_step(read_body(requests.OptimStep, step))
    return dict(value(service, request_id)["metrics"])


def sampled(service: TinkerService, session_id: str, seq_id: int, **params: Any) -> SampleOutput:
    body = {
        "sampling_session_id": session_id,
        "seq_id": seq_id,
        "num_samples": 2,
        "prompt": {"chunks": [{"tokens": [1, 2, 3]}]},
        "sampling_params": {"max_tokens": 8, **params},
        "prompt_logprobs": True,
    }
    request_id, _ = service.sample(read_body(requests.SampleBody, body))
    found = outcome(service, request_id)
    assert isinstance(found, SampleOutput), found
    return found


def new_sampler(service: TinkerService, *, session: str = "one", number: int = 0) -> str:
    session_id = service.registry.new_session(session)
    body = {"session_id": session_id, "sampling_session_seq_id": number, "base_model": "tiny"}
    return service.create_sampling_session(read_body(requests.CreateSamplingSession, body))


def test_a_creation_that_is_repeated_creates_nothing(library: ModelLibrary, tmp_path: Path) -> None:
    with opened(tmp_path, library) as service:
        first, again = new_model(service), new_model(service)
        assert first == again
        assert new_model(service, number=1) != first
        assert new_model(service, session="two") != first
        with pytest.raises(RequestRefused, match="was created otherwise"):
            new_model(service, lora_config={"rank": 2})
        sampler = new_sampler(service)
        assert sampler == new_sampler(service)
    with opened(tmp_path, library) as service:
        assert new_model(service) == first
        assert service.info(first)["is_lora"] is False
        assert service.registry.sampler(sampler).base_model == "tiny"


def test_what_was_accepted_before_a_restart_is_done_after_it(
    library: ModelLibrary, tmp_path: Path
) -> None:
    with opened(tmp_path, library) as service:
        model_id = new_model(service)
        first = trained(service, model_id, 1)
    with opened(tmp_path, library) as service:
        assert value(service, f"{model_id}:2")["metrics"] == first
        assert trained(service, model_id, 3)["grad_norm"] < first["grad_norm"]


def test_more_runs_than_fit_into_memory_go_on_as_they_were(
    library: ModelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def norms(root: Path) -> list[dict[str, Any]]:
        with opened(root, library) as service:
            models = [new_model(service, number=number) for number in range(3)]
            return [trained(service, one, seq_id) for seq_id in (1, 3) for one in models]

    unlimited = norms(tmp_path / "unlimited")
    monkeypatch.setattr(work, "_MOST_LOADED", 1)
    with_one = norms(tmp_path / "one")
    assert with_one == unlimited
    for folder in (tmp_path / "one" / RUNS).iterdir():
        if not folder.name.endswith(".2"):
            assert [path.name for path in (folder / "snapshots").iterdir()] == ["0000000004"]


def test_samples_without_a_seed_differ_by_number_and_repeat(
    library: ModelLibrary, tmp_path: Path
) -> None:
    with opened(tmp_path / "one", library) as service:
        session_id = new_sampler(service)
        first, second = sampled(service, session_id, 0), sampled(service, session_id, 1)
        other = sampled(service, new_sampler(service, number=1), 0)
        assert service.outcome(f"{session_id}:0") is service.outcome(f"{session_id}:0")
        before = service.outcome(f"{session_id}:0")
        sampled(service, session_id, 0)
        assert service.outcome(f"{session_id}:0") is before
    assert first.samples != second.samples
    assert first.samples != other.samples
    assert first.prompt_logprobs is not None
    assert math.isnan(first.prompt_logprobs[0])
    with opened(tmp_path / "two", library) as service:
        assert sampled(service, new_sampler(service), 0).samples == first.samples


def test_samples_of_before_a_restart_are_to_be_asked_again(
    library: ModelLibrary, tmp_path: Path
) -> None:
    with opened(tmp_path, library) as service:
        session_id = new_sampler(service)
        first = sampled(service, session_id, 0, seed=4)
    with opened(tmp_path, library) as service:
        with pytest.raises(RequestRefused, match="ask for them again") as error:
            service.outcome(f"{session_id}:0")
        assert error.value.status == 410
        assert sampled(service, session_id, 1, seed=4).samples == first.samples


def test_a_stop_is_a_text_or_the_token_of_one(library: ModelLibrary, tmp_path: Path) -> None:
    with opened(tmp_path, library) as service:
        session_id = new_sampler(service)
        plain = sampled(service, session_id, 0, seed=1).samples[0].tokens
        token = next(one for one in plain if 32 <= one < 127)
        for number, stop in enumerate(([token], chr(token), [chr(token)]), start=1):
            cut = sampled(service, session_id, number, seed=1, stop=stop).samples[0]
            assert cut.tokens == plain[: plain.index(token) + 1]
            assert cut.stop_reason == "stop"
        for stop, words in (([], "cannot sample on past"), ([200], "which is no text of its own")):
            with pytest.raises(RequestRefused, match=words):
                sampled(service, session_id, 9, stop=stop)


def test_saved_weights_are_found_in_every_request_and_never_listed(
    library: ModelLibrary, tmp_path: Path
) -> None:
    with opened(tmp_path, library) as service:
        model_id = new_model(service, lora_config={"rank": 2})
        trained(service, model_id, 1)
        body = {"model_id": model_id, "seq_id": 3, "path": "one"}
        saved = requests.SaveForSampler
        path = value(service, service.save_weights_for_sampler(read_body(saved, body)))["path"]
        assert path in service.library
        assert service.library.load(path).context == 48
        assert service.library.names() == ["tiny"]
        assert path + "x" not in service.library
        assert service.weights_info(path)["lora_rank"] == 2
        load = {"model_id": model_id, "seq_id": 4, "path": path, "optimizer": True}
        request_id = service.load_weights(read_body(requests.LoadWeights, load))
        assert "use one that save_state saved" in outcome(service, request_id).to_json()["error"]


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        (lambda s: s.registry.check_session("session-x"), "no session 'session-x'"),
        (lambda s: s.outcome("nothing"), "no request 'nothing'"),
        (lambda s: s.outcome("session-x:train:0:1"), "no model 'session-x:train:0'"),
        (lambda s: sampled(s, "session-x:sample:0", 0), "no sampling session"),
        (
            lambda s: new_model(s, optimizer_config={"type": "dimuon"}),
            "this server has adamw alone",
        ),
        (
            lambda s: s.optim_step(requests.OptimStep(model_id="a", adam_params={})),
            "optim_step needs a seq_id of 1 or more",
        ),
    ],
)
def test_what_is_not_there_is_named(
    library: ModelLibrary, tmp_path: Path, deed: Any, words: str
) -> None:
    with opened(tmp_path, library) as service, pytest.raises(RequestRefused, match=words):
        deed(service)
