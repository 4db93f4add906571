"""Models in memory: loaded once, released when others need the memory, and never while they are used."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ludus.core.errors import LudusError
from ludus.text.models.library import ModelLibrary
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.server.errors import ApiError
from ludus.text.server.loaded_models import LoadedModels
from ludus.text.server.settings import EngineSettings


@pytest.fixture
def library(tiny: Path, tmp_path: Path) -> ModelLibrary:
    made = ModelLibrary(tmp_path / "models")
    for name in ("a", "b", "c"):
        made.add(name, tiny)
    return made


def test_the_least_recently_used_model_is_released(library: ModelLibrary) -> None:
    models = LoadedModels(library, EngineSettings(max_loaded_models=2))
    for name in ("a", "b", "a", "c"):
        models.release(models.acquire(name))
    assert models.names() == ["a", "c"]
    models.close()


def test_a_model_in_use_stays_until_it_is_not(library: ModelLibrary) -> None:
    models = LoadedModels(library, EngineSettings(max_loaded_models=1))
    first, second = models.acquire("a"), models.acquire("b")
    assert models.names() == ["a", "b"]
    models.release(first)
    assert models.names() == ["b"]
    with pytest.raises(LudusError, match="closed"):
        first.engine.submit(_request())
    second.engine.submit(_request()).result()
    models.close()


def test_the_weights_may_take_so_much_memory_and_no_more(library: ModelLibrary) -> None:
    size = (library.directory("a") / "model.safetensors").stat().st_size / 1e9
    models = LoadedModels(library, EngineSettings(max_memory_gb=1.5 * size))
    for name in ("a", "b"):
        models.release(models.acquire(name))
    assert models.names() == ["b"]
    models.close()
    models = LoadedModels(library, EngineSettings(max_memory_gb=0.5 * size))
    with pytest.raises(ApiError, match="start the server with a higher --memory-gb") as caught:
        models.acquire("a")
    assert caught.value.code == "model_not_loadable"
    models.close()


def test_a_deleted_model_answers_what_was_asked_before(library: ModelLibrary) -> None:
    models = LoadedModels(library, EngineSettings())
    model = models.acquire("a")
    answer = model.engine.submit(_request())
    library.delete("a")
    models.drop("a")
    assert len(answer.result()) == 1
    with pytest.raises(ApiError, match="The model `a` does not exist"):
        models.acquire("a")
    models.release(model)
    with pytest.raises(LudusError, match="closed"):
        model.engine.submit(_request())
    models.close()


def test_a_model_that_many_ask_for_at_once_is_loaded_once(
    library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[object] = []
    monkeypatch.setattr(SamplingEngine, "check_batch_invariance", lambda one: checks.append(one))
    models = LoadedModels(library, EngineSettings())
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(models.acquire("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    # Another model of the same architecture needs no check of its own.
    models.acquire("b")
    assert len(checks) == 1
    models.close()


def test_a_model_whose_samples_depend_on_the_load_is_refused_unless_that_is_asked_for(
    library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def depends(engine: SamplingEngine) -> None:
        raise LudusError("samples would depend on the load; use one thread")

    monkeypatch.setattr(SamplingEngine, "check_batch_invariance", depends)
    models = LoadedModels(library, EngineSettings())
    with pytest.raises(ApiError, match="use one thread"):
        models.acquire("a")
    told: list[str] = []
    models = LoadedModels(library, EngineSettings(needs_same_text=False), tell=told.append)
    models.release(models.acquire("a"))
    assert told == [
        "samples would depend on the load; use one thread; it is served nevertheless, as was asked"
    ]
    models.close()


def test_a_damaged_model_is_told_and_the_next_request_tries_again(library: ModelLibrary) -> None:
    models = LoadedModels(library, EngineSettings())
    path = library.directory("a") / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(ApiError) as caught:
        models.acquire("a")
    assert caught.value.code == "model_not_loadable"
    path.write_bytes(whole)
    models.release(models.acquire("a"))
    models.close()


def _request() -> object:
    from ludus.text.sampling.request import SampleRequest

    return SampleRequest(prompt=(1, 2), n=1, seed=0, max_tokens=2)
