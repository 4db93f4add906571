"""API keys: read from a variable or a private file, and in no error, file, text or traceback."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from ludus.text.client.cache import ResponseCache
from ludus.text.client.http import HttpClient, url_problem
from ludus.text.client.secret import KeyConfig, Secret
from ludus.text.provider import ProviderError
from tests.text.client.parts import KEY, ask, client_config, openai, opened, retry, spec
from tests.text.faulty_server import FaultyServer


def test_a_secret_is_never_shown() -> None:
    secret = Secret(KEY)
    texts = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>9}",
        f"{secret}",
        f"{[secret]}",
    ]
    assert all(KEY not in text and "***" in text for text in texts)
    assert secret.reveal() == KEY
    assert secret.removed_from(f"a {KEY} b {KEY}") == "a *** b ***"
    for save in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError):
            save(secret)


def config(**keys: Any) -> KeyConfig:
    return validate(KeyConfig, {"variable": None, "file": None, **keys}, source="x")


def test_a_key_is_read_from_a_variable_or_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    assert config(variable="MY_KEY").read().reveal() == KEY
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    assert config(file=str(file)).read().reveal() == KEY
    for mode in (0o640, 0o604, 0o644):
        file.chmod(mode)
        with pytest.raises(ConfigError, match=f"can be read by other users.*chmod 600 {file}"):
            config(file=str(file)).read()


def test_a_mistake_with_the_key_does_not_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", f"{KEY} {KEY}")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"variable": KEY}, "takes the name of an environment variable"),
        ({"variable": "MY_KEY", "file": "x"}, "give one of 'variable' and 'file'"),
        ({}, "give one of 'variable' and 'file'"),
        ({"variable": "MY_KEY"}, "holds no API key"),
        ({"variable": "NOT_SET_ANYWHERE"}, "is not set"),
        ({"file": str(tmp_path / "none")}, "No such file"),
        ({"file": str(tmp_path)}, "not a plain file"),
    ]
    for keys, words in mistakes:
        with pytest.raises(ConfigError, match=words) as raised:
            config(**keys).read()
        assert KEY not in str(raised.value)


def test_a_url_may_hold_no_password() -> None:
    assert "user or password" in (url_problem(f"https://me:{KEY}@host/v1") or "")
    assert KEY not in (url_problem(f"https://me:{KEY}@host/v1") or "")
    for url in ("host/v1", "ftp://host", "http://", "http://host:x/v1", "https://h/v1?a=b"):
        assert url_problem(url) is not None
    for url in ("http://127.0.0.1:8000/v1", "https://api.openai.com/v1", "http://[::1]:80/v1"):
        assert url_problem(url) is None


@pytest.mark.parametrize(
    "fault", ["401", "400", "500", "before", "after", "cut", "short", "garbage", "hang", None]
)
def test_the_key_is_in_no_error_log_traceback_or_file(
    fault: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    errors: list[BaseException] = []

    async def main() -> None:
        # Without a fault the key is wrong, and the server repeats it in its answer.
        key = "another" if fault is None else None
        async with FaultyServer(fault=lambda request: fault, key=key) as server:
            settings = client_config(timeout_seconds=0.2, retry=retry(max_attempts=2))
            cache = ResponseCache(tmp_path / "cache", provider="x")
            keys: dict[str, Any] = {"config": settings, "cache": cache}
            tell = lambda text, event=None: told.append(text)  # noqa: E731
            async with opened(openai(server.url), tmp_path, tell=tell, **keys) as client:
                tasks = [
                    ask(client, 0),
                    client.check_models(["tiny"]),
                    client.ensure_job(spec(), agent="solver", stage="jobs"),
                ]
                for task in tasks:
                    try:
                        await task
                    except LudusError as error:
                        errors.append(error)
                told.append(repr(client.provider.config))

    asyncio.run(main())
    assert errors
    for error in errors:
        # Frames' variables are printed by some tools, contexts by all.
        found = traceback.TracebackException.from_exception(error, capture_locals=True)
        # The server of this test keeps the headers that it was sent.
        assert not [
            one for one in found.stack if "/tests/" not in one.filename and KEY in f"{one.locals}"
        ]
        assert KEY not in "".join(found.format_exception_only())
        seen: set[int] = set()
        chain: list[BaseException | None] = [error]
        while chain:
            one = chain.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            chain += [one.__cause__, one.__context__]
            assert KEY not in f"{one!r} {one.args} {vars(one)}"
    assert KEY not in caplog.text
    assert KEY not in "".join(told)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_control_characters_of_a_server_do_not_reach_the_error() -> None:
    async def main() -> str:
        async with FaultyServer() as server:

            async def answer(request: Any) -> tuple[int, Any]:
                return 400, {"error": {"message": "\x1b[31mred\x07\x9b", "code": "x"}}

            server._answer = answer  # type: ignore[method-assign]
            http = HttpClient(server.url, None, name="the server")
            await http.open()
            try:
                with pytest.raises(ProviderError) as raised:
                    await http.get("/models")
                return str(raised.value)
            finally:
                await http.close()

    message = asyncio.run(main())
    assert "red" in message
    assert message.isprintable()
