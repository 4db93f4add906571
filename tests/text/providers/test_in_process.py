"""Models of this machine in this process: each key does what its sentence says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from ludus.text.models.new_model import NewModelConfig, make_model
from ludus.text.provider import ProviderServices
from ludus.text.providers.in_process import InProcess
from tests.text.client.parts import request

T = TypeVar("T")
TINY: dict[str, Any] = {
    "kind": "byte_llama", "width": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2,
    "mlp_width": 16, "context": 64, "seed": 0, "embedding_std": 0.02,
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "kind": "in_process", "new_models": {"tiny": TINY}, "models": {}, "max_rows": 8,
    "max_loaded_models": 2, "device": "cpu",
}  # fmt: skip


def do(root: Path, deed: Callable[[InProcess], Awaitable[T]], **keys: Any) -> T:
    """Open the provider with these keys, and do something with it."""
    config = validate(InProcess.Config, {**PLAIN, **keys}, source="x")

    async def main() -> T:
        provider = InProcess(config, ProviderServices(lambda: root, seed=0))
        await provider.open()
        try:
            return await deed(provider)
        finally:
            await provider.close()

    return asyncio.run(main())


async def names(provider: InProcess) -> list[str]:
    return sorted(one.id for one in await provider.models())


def texts(**keys: Any) -> Callable[[InProcess], Awaitable[list[str]]]:
    async def deed(provider: InProcess) -> list[str]:
        answer = await provider.chat(request(n=4, max_tokens=6, **keys))
        return [choice.text for choice in answer.choices]

    return deed


def test_new_models_are_made_once_and_other_directories_are_copied(tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_model(NewModelConfig(**{**TINY, "seed": 5}), other)
    root = tmp_path / "root"
    assert do(root, names, models={"copied": str(other)}) == ["copied", "tiny"]
    # One that is there is kept as it is.
    before = do(root, texts())
    assert do(root, texts(), new_models={"tiny": {**TINY, "seed": 7}}) == before
    assert do(tmp_path / "second", texts(), new_models={"tiny": {**TINY, "seed": 7}}) != before
    assert do(root, texts(model="copied")) != before
    with pytest.raises(LudusError, match="nowhere"):
        do(tmp_path / "third", names, models={"copied": str(tmp_path / "nowhere")})


def test_samples_are_the_same_however_many_a_model_computes_at_a_time(tmp_path: Path) -> None:
    async def rows(provider: InProcess) -> tuple[int, list[str]]:
        return provider.engine.settings.max_rows, await texts()(provider)

    (few, one), (many, other) = (do(tmp_path, rows, max_rows=count) for count in (1, 64))
    assert (few, many) == (1, 64)
    assert one == other


def test_so_many_models_are_loaded_and_the_least_recently_used_is_released(tmp_path: Path) -> None:
    async def loaded(provider: InProcess) -> list[bool]:
        for model in ("a", "b"):
            await provider.chat(request(model=model))
        return [provider.engine.is_loaded(model) for model in ("a", "b")]

    both = {"new_models": {"a": TINY, "b": TINY}}
    assert do(tmp_path, loaded, **both, max_loaded_models=1) == [False, True]
    assert do(tmp_path, loaded, **both, max_loaded_models=2) == [True, True]


def test_models_are_on_the_device_that_is_named(tmp_path: Path) -> None:
    async def device(provider: InProcess) -> str:
        return provider.engine.settings.device

    assert do(tmp_path, device) == "cpu"
    assert do(tmp_path, device, device="auto") in ("cpu", "cuda")
    with pytest.raises(ConfigError, match=r"provider\.device is 'cuda:7', but"):
        do(tmp_path, texts(), device="cuda:7")


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LudusError, match="huge"):
        do(tmp_path, texts(model="huge"))
