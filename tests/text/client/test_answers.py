"""The journal of answers: group commit, an index, and nothing paid for is forgotten or asked twice."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from ludus.core.errors import LudusError, StorageError
from ludus.text.chat import ChatAnswer, ChatChoice, TokenLogprob
from ludus.text.client.answers import AnswerJournal, AnswerRecord
from ludus.text.client.ledger import Ledger
from ludus.text.client.spending import Amount, Payer, Spent
from tests.text.client.parts import (
    ask,
    budget,
    client_config,
    journals,
    openai,
    opened,
    request,
)
from tests.text.faulty_server import FaultyServer

PAYER = Payer("solver", "sample", "tiny")
ANSWER = ChatAnswer((ChatChoice("ja", "stop", 3),), 10, 3)


def record(answer: ChatAnswer | None = ANSWER, **changes: Any) -> AnswerRecord:
    keys: dict[str, Any] = {"open": None, "spent": Spent(1, 10, 0, 3, cost=0.5), "answer": answer}
    return AnswerRecord("digest", PAYER, **{**keys, **changes})


def file(folder: Path, iteration: int = 0) -> Path:
    return folder / "journals" / f"answers-{iteration:06d}.jsonl"


def test_an_answer_is_not_asked_for_again_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            provider = openai(server.url)
            async with opened(provider, tmp_path) as client:
                first = await client.together(
                    ask(client, at, n=2, logprobs=True) for at in range(5)
                )
            server.answer = lambda body, index: "another"
            async with opened(provider, tmp_path) as client:
                again = await client.together(
                    ask(client, at, n=2, logprobs=True) for at in range(6)
                )
                assert again[:5] == first
                assert again[5].choices[0].text == "another"
                assert client.ledger.spent.requests == 6
            assert len(server.requests) == 6

    asyncio.run(main())


def test_a_request_that_has_changed_is_asked_again_and_both_are_paid(tmp_path: Path) -> None:
    async def main() -> None:
        async with FaultyServer() as server, opened(openai(server.url), tmp_path) as client:
            keys = {"key": "a", "agent": "solver", "stage": "sample"}
            await client.chat(request("one"), **keys)
            await client.chat(request("two"), **keys)
            assert len(server.requests) == 2
            spent = client.ledger.spent
            # The first answer is of no use any more, and its price is known to the token.
            assert (spent.requests, spent.lost_requests, spent.lost_tokens) == (1, 1, 13)

    asyncio.run(main())


def test_two_requests_of_one_key_at_a_time_are_a_mistake() -> None:
    async def main() -> None:
        async with FaultyServer(delay=0.01) as server, opened(openai(server.url)) as client:
            with pytest.raises(LudusError, match="two requests have the key '1'"):
                await client.together(ask(client, 1) for _ in range(2))

    asyncio.run(main())


def test_32_answers_share_one_sync_which_runs_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        syncs.append((threading.current_thread(), len(file(tmp_path).read_text().splitlines())))
        real(descriptor)

    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        journal.put("first", record())
        await journal.flush()
        monkeypatch.setattr("os.fsync", fsync)
        for number in range(32):
            assert not syncs
            journal.put(str(number), record())
        # The 32nd begins it, without waiting for the time of a smaller group.
        assert journal._flushing is not None
        assert journal._timer is None
        await journal._flushing
        assert len(syncs) == 1
        await journal.flush()

    asyncio.run(main())
    thread, lines = syncs[0]
    assert lines == 33
    assert thread is not threading.main_thread()
    assert len(syncs) == 2


def test_a_single_answer_becomes_durable_without_more_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        journal.put("first", record())
        await journal.flush()
        synced = asyncio.Event()
        loop, real = asyncio.get_running_loop(), os.fsync

        def fsync(descriptor: int) -> None:
            real(descriptor)
            loop.call_soon_threadsafe(synced.set)

        monkeypatch.setattr("os.fsync", fsync)
        journal.put("a", record())
        assert journal._timer is not None
        assert journal._timer.when() - loop.time() < 0.1
        await asyncio.wait_for(synced.wait(), 10)

    asyncio.run(main())


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(min_value=0, max_value=4000), number=st.integers(1, 5))
def test_a_torn_tail_is_dropped_and_asked_again(
    cut: int, number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("torn")

    async def main() -> None:
        journal = AnswerJournal(journals(folder))
        journal.begin(0)
        for at in range(number):
            journal.put(str(at), record())
        await journal.flush()
        whole = file(folder).read_bytes()
        kept = whole[: len(whole) - cut % len(whole)]
        file(folder).write_bytes(kept)
        again = AnswerJournal(journals(folder))
        again.begin(0)
        num_lines = kept.count(b"\n")
        for at in range(number):
            found = again.find(str(at))
            assert (found == record()) if at < num_lines else found is None
        again.put("new", record())
        await again.flush()
        third = AnswerJournal(journals(folder))
        assert third.begin(0).num_answers == num_lines + 1

    asyncio.run(main())


def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        journal.put("a", record())
        journal.put("b", record())
        await journal.flush()

    asyncio.run(main())
    whole = file(tmp_path).read_bytes()
    file(tmp_path).write_bytes(b"{" + whole)
    with pytest.raises(StorageError, match=r"line 1 of journals/answers-000000\.jsonl is damaged"):
        AnswerJournal(journals(tmp_path)).begin(0)
    file(tmp_path).write_bytes(whole.replace(b'"digest"', b'"dagest"', 1))
    with pytest.raises(StorageError, match=r"':a' in journals/answers-000000\.jsonl is damaged"):
        AnswerJournal(journals(tmp_path)).begin(0)


def test_an_answer_longer_than_a_line_comes_back_whole(tmp_path: Path) -> None:
    tokens = tuple(TokenLogprob(at, -0.1 * at) for at in range(60_000))
    answer = ChatAnswer((ChatChoice('ü"\\' * 300_000, "length", 60_000, tokens),), 1, 60_000)

    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        journal.put("long", record(answer))
        await journal.flush()
        again = AnswerJournal(journals(tmp_path))
        again.begin(0)
        found = again.find("long")
        assert found is not None
        assert found.answer == answer

    asyncio.run(main())


def test_a_sync_that_fails_is_raised_and_not_kept_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        journal.put("a", record())
        await journal.flush()
        monkeypatch.setattr("os.fsync", broken)
        journal.put("b", record())
        with pytest.raises(OSError, match="Input/output error"):
            await journal.flush()

    asyncio.run(main())


def test_an_iteration_is_read_from_the_index_once_it_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        for iteration in range(4):
            journal.begin(iteration)
            for at in range(iteration + 1):
                journal.put(str(at), record())
        await journal.flush()

    asyncio.run(main())
    # The last one was not sealed, as after a kill; the files of the others are not needed.
    for iteration in range(3):
        file(tmp_path, iteration).unlink()
    found = list(AnswerJournal(journals(tmp_path)).iterations())
    assert [one.num_answers for one in found] == [1, 2, 3, 4]
    assert [one.spent[PAYER].completion_tokens for one in found] == [3, 6, 9, 12]


def test_an_iteration_that_is_begun_again_is_sealed_anew(tmp_path: Path) -> None:
    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        journal.put("a", record())
        journal.begin(1)
        assert journal.begin(0).num_answers == 1
        journal.put("b", record())
        journal.seal()
        assert [one.num_answers for one in journal.iterations()] == [2, 0]

    asyncio.run(main())


def test_files_of_past_iterations_are_closed(tmp_path: Path) -> None:
    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        before = len(os.listdir("/proc/self/fd"))
        for iteration in range(30):
            journal.begin(iteration)
            journal.put("a", record())
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        await journal.flush()

    asyncio.run(main())


def test_a_directory_of_a_million_answers_opens_and_lists_by_its_index(tmp_path: Path) -> None:
    # The files of 500 iterations of 2,000 answers would be 500 MB; the index alone is read.
    open_journal = journals(tmp_path)
    index = open_journal("answers")
    row = [["solver", "sample", "tiny", *Spent(2000, 20_000, 0, 6000, cost=1.0).to_json()]]
    for iteration in range(500):
        name = f"answers-{iteration:06d}"
        index.add(name, {"state": "begun"})
        index.add(name, {"state": "sealed", "answers": 2000, "spent": row})
    index.flush()
    began = time.process_time()
    journal, ledger = AnswerJournal(journals(tmp_path)), Ledger(budget())
    ledger.begin(journal.iterations())
    took = time.process_time() - began
    assert ledger.spent.requests == 1_000_000
    assert took < 0.5


def test_a_request_in_flight_at_a_kill_counts_as_what_it_may_have_cost(tmp_path: Path) -> None:
    async def main() -> None:
        journal = AnswerJournal(journals(tmp_path))
        journal.begin(0)
        journal.put("a", record())
        # Nothing is synced or closed, as when the process is killed.
        journal.put("b", record(None, open=Amount(90, 0.25), spent=Spent()))
        ledger = Ledger(budget())
        ledger.begin(AnswerJournal(journals(tmp_path)).iterations())
        assert ledger.spent == Spent(
            1, 10, 0, 3, cost=0.5, lost_requests=1, lost_tokens=90, lost_cost=0.25
        )
        await journal.flush()

    asyncio.run(main())


def test_answers_that_repeat_need_not_be_recorded_and_are_counted_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with FaultyServer() as server:
            provider = openai(server.url)
            provider.is_repeatable = True  # type: ignore[misc]
            config = client_config(record_answers="if_needed")
            for _ in range(2):
                async with opened(provider, tmp_path, config=config) as client:
                    await ask(client, 1)
                    assert client.ledger.of_iteration(0).prompt_tokens == 10
            assert client.ledger.spent.lost_tokens == 13
            assert len(server.requests) == 2
            assert b"sample 0" not in file(tmp_path).read_bytes()

    asyncio.run(main())


def test_a_request_that_is_cancelled_in_flight_counts_as_what_it_may_have_cost(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with FaultyServer(fault=lambda request: "hang") as server:
            async with opened(openai(server.url), tmp_path) as client:
                task = asyncio.create_task(ask(client, 0))
                waiting = asyncio.create_task(client.together([ask(client, 1)]))
                while len(server.requests) < 2:
                    await asyncio.sleep(0.001)
                task.cancel()
                waiting.cancel()
                await asyncio.gather(task, waiting, return_exceptions=True)
                assert task.cancelled()
                assert client.ledger.spent.lost_requests == 2
                assert client.ledger._reserved == Amount(0, 0.0)
            ledger = Ledger(budget())
            ledger.begin(AnswerJournal(journals(tmp_path)).iterations())
            assert ledger.spent == client.ledger.spent

    asyncio.run(main())


def test_a_request_that_waits_for_its_turn_costs_nothing_when_it_is_cancelled() -> None:
    async def main() -> None:
        async with FaultyServer(fault=lambda request: "hang") as server:
            config = client_config(max_concurrency=1)
            async with opened(openai(server.url), config=config) as client:
                tasks = [asyncio.create_task(ask(client, at)) for at in range(5)]
                while not server.requests:
                    await asyncio.sleep(0.001)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert client.ledger.spent.lost_requests == 1
                assert len(server.requests) == 1

    asyncio.run(main())
