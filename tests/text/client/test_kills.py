"""A process that is killed while it samples asks again only what was in flight, and forgets no money."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.text.client.parts import ask, client_config, openai, opened
from tests.text.faulty_server import FaultyServer

_NUMBER = 120
_VICTIM = """
import asyncio, sys
from pathlib import Path
from tests.text.client.parts import ask, client_config, openai, opened

async def main():
    config = client_config(max_concurrency=8)
    async with opened(openai(sys.argv[1]), Path(sys.argv[2]), config=config) as client:
        await client.together(ask(client, at) for at in range(int(sys.argv[3])))

asyncio.run(main())
"""


async def kill_at(server: FaultyServer, folder: Path, answered: int) -> None:
    """Run the victim, and kill it once the server has computed so many answers."""
    arguments = [server.url, str(folder), str(_NUMBER)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _VICTIM, *arguments, env=environment
    )
    while server.answered < answered and victim.returncode is None:
        await asyncio.sleep(0.001)
    # One that is faster than its killer ends well, which is a case too.
    with contextlib.suppress(ProcessLookupError):
        victim.send_signal(signal.SIGKILL)
    await victim.wait()


def campaign(folder: Path, kills: list[int]) -> None:
    async def main() -> None:
        async with FaultyServer(delay=0.005) as server:
            server.answer = lambda body, index: str(body["messages"][0]["content"])
            for answered in kills:
                await kill_at(server, folder, answered)
            config = client_config(max_concurrency=8)
            async with opened(openai(server.url), folder, config=config) as client:
                found = await client.together(ask(client, at) for at in range(_NUMBER))
                texts = [answer.choices[0].text for answer in found]
                assert texts == [f"question {at}" for at in range(_NUMBER)]
                spent = client.ledger.spent
            assert spent.requests == _NUMBER
            # Each try that the server computed is an answer that was used, or one that is known as lost.
            assert server.answered <= _NUMBER + spent.lost_requests
            # Only what was in flight at a kill was asked again.
            assert server.answered <= _NUMBER + 8 * len(kills)
            assert spent.lost_requests <= 8 * len(kills)

    asyncio.run(main())


def test_a_killed_run_asks_again_only_what_was_in_flight(tmp_path: Path) -> None:
    campaign(tmp_path / "run", [60])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(3, 100, 10))
def test_a_run_that_is_killed_again_and_again_asks_again_only_what_was_in_flight(
    first: int, tmp_path: Path
) -> None:
    campaign(tmp_path / "run", [first, first + 15, first + 40])
