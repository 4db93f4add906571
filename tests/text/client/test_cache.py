"""The response cache: the same request of the same provider is answered from disk, and costs nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ludus.core.errors import ConfigError
from ludus.text.client.cache import ResponseCache
from tests.text.client.parts import ask, openai, opened, request
from tests.text.faulty_server import FaultyServer


def test_another_run_finds_the_answer_and_pays_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            found = []
            for _ in range(2):
                cache = ResponseCache(tmp_path, provider=server.url)
                async with opened(openai(server.url), cache=cache) as client:
                    found.append(await ask(client, 0, n=2))
                    spent = client.ledger.spent
            assert found[0] == found[1]
            assert len(server.requests) == 1
            assert spent.tokens == spent.requests == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "other", [{"seed": 8}, {"model": "big"}, {"temperature": 0.0}, {"n": 2}, {"stop": ("\n",)}]
)
def test_what_is_asked_differently_is_asked(other: dict[str, object], tmp_path: Path) -> None:
    from tests.text.client.test_answers import ANSWER

    cache = ResponseCache(tmp_path, provider="x")
    cache.put(request(), ANSWER)
    assert cache.get(request()) == ANSWER
    assert cache.get(request(**other)) is None
    assert ResponseCache(tmp_path, provider="y").get(request()) is None


def test_a_damaged_file_is_asked_for_again(tmp_path: Path) -> None:
    from tests.text.client.test_answers import ANSWER

    cache = ResponseCache(tmp_path, provider="x")
    cache.put(request(), ANSWER)
    (path,) = tmp_path.rglob("*.json")
    whole = path.read_bytes()
    for damage in (b"", whole[:-5], b"[]", b"[" * 100_000, whole.replace(b"choices", b"chances")):
        path.write_bytes(damage)
        assert cache.get(request()) is None
    path.unlink()
    path.symlink_to("/dev/zero")
    assert cache.get(request()) is None


def test_a_directory_that_cannot_be_made_is_told_before_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"'client.cache' is .*file/x, which cannot be made"):
        ResponseCache(tmp_path / "file" / "x", provider="x")
