"""Parts that the tests of the client share: configs, requests, a client of a faulty server."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ludus.core.services import MemoryJournal
from ludus.store.journal import Journal
from ludus.store.local import LocalStorage
from ludus.text.chat import ChatAnswer, ChatMessage, ChatRequest
from ludus.text.client.client import Client
from ludus.text.client.config import ClientConfig, PriceConfig, RetryConfig, SpendingConfig
from ludus.text.client.ledger import Ledger
from ludus.text.jobs import JobSpec
from ludus.text.provider import Provider, ProviderServices
from ludus.text.providers.openai import Openai, OpenaiConfig

KEY = "sk-canary-5f1f0c3a9e"
PRICE = PriceConfig(input=1.0, cached_input=0.5, output=2.0, training=4.0)


def retry(**changes: Any) -> RetryConfig:
    keys = {"max_attempts": 4, "first_delay_seconds": 0.005, "max_delay_seconds": 0.02}
    return RetryConfig(**{**keys, "deadline_seconds": 20.0, **changes})


def client_config(**changes: Any) -> ClientConfig:
    keys: dict[str, Any] = {
        "max_concurrency": 64,
        "timeout_seconds": 10.0,
        "retry": retry(),
        "record_answers": "always",
        "cache": None,
        "model_days": 30,
        "settle_seconds": 0.05,
        "job_deadline_seconds": 20.0,
    }
    return ClientConfig(**{**keys, **changes})


def budget(**changes: Any) -> SpendingConfig:
    keys: dict[str, Any] = {"max_cost": None, "max_tokens": None, "prices": {"*": PRICE}}
    return SpendingConfig(**{**keys, **changes})


def request(text: str = "How many?", **changes: Any) -> ChatRequest:
    keys: dict[str, Any] = {
        "model": "tiny",
        "messages": (ChatMessage("user", text),),
        "n": 1,
        "seed": 7,
        "max_tokens": 8,
        "temperature": 1.0,
        "top_p": 1.0,
    }
    return ChatRequest(**{**keys, **changes})


def spec(scope: str = "run/0/solvers", **changes: Any) -> JobSpec:
    keys: dict[str, Any] = {
        "model": "tiny",
        "method": "supervised",
        "lines": b'{"messages": []}\n' * 12,
        "hyperparameters": {"n_epochs": 2},
        "seed": 3,
        "suffix": "it0",
        "scope": scope,
    }
    return JobSpec(**{**keys, **changes})


def services() -> ProviderServices:
    return ProviderServices(directory=Path, seed=0)


def openai(url: str, monkey_key: str | None = None) -> Openai:
    """Return the provider of an address; its key is in the variable FAULTY_KEY."""
    config = OpenaiConfig(kind="openai", url=url, key={"variable": "FAULTY_KEY", "file": None})
    return Openai(config, services())


def journals(folder: Path | None) -> Callable[[str], Any]:
    """Return what opens journals, as `run.journal` does."""
    if folder is None:
        return functools.cache(MemoryJournal)
    folder.mkdir(exist_ok=True)
    storage = LocalStorage(folder)
    return functools.cache(lambda name: Journal(storage, name))


@contextlib.asynccontextmanager
async def opened(
    provider: Provider, folder: Path | None = None, **keys: Any
) -> AsyncIterator[Client]:
    """Yield an open client in its first iteration."""
    config = keys.pop("config", client_config())
    ledger = keys.pop("ledger", None) or Ledger(budget())
    client = Client(provider, config, journal=journals(folder), ledger=ledger, **keys)
    async with client:
        client.begin(0)
        yield client


async def ask(client: Client, number: int, **keys: Any) -> ChatAnswer:
    """Ask the request of a number, with a key of its own."""
    one = request(f"question {number}", **keys)
    return await client.chat(one, key=str(number), agent="solver", stage="sample")
