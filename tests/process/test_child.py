"""A child process answers, fails, hangs and dies in ways the parent always hears of."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from ludus.config import registry
from ludus.process.child import _SERVERS, Child, ChildDied, ChildFailed, ChildHung, ready_among

ROOT = Path(__file__).parents[2]
HANDLERS = "tests.process.child_handlers"


@pytest.fixture
def child():
    child = Child(HANDLERS, name="the child")
    yield child
    child.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_is_sent_comes_back_byte_for_byte(child: Child) -> None:
    pieces = [b"", os.urandom(3), os.urandom(3_000_000)]
    header, heard = child.ask({"do": "echo", "say": ["ü", 1.5, None]}, pieces)
    assert header == {"heard": ["ü", 1.5, None]}
    assert [bytes(piece) for piece in heard] == pieces


def test_an_empty_request_gets_an_empty_answer(child: Child) -> None:
    assert child.ask({}) == ({}, [])


def test_requests_are_answered_in_order(child: Child) -> None:
    for number in range(3):
        child.send({"do": "echo", "say": number})
    assert [child.receive()[0]["heard"] for _ in range(3)] == [0, 1, 2]


def test_a_child_may_ask_its_parent_before_it_answers(child: Child) -> None:
    child.send({"do": "converse", "question": "how far?"})
    assert child.receive()[0] == {"asks": "how far?"}
    child.send({"do": "an answer to the handler, not a request", "answer": 7})
    assert child.receive()[0] == {"was_addressed": False, "heard": 7}
    assert child.ask({"do": "echo", "say": 1})[0] == {"heard": 1}


def test_of_several_children_those_are_found_that_have_said_something_or_are_gone(
    child: Child,
) -> None:
    other = Child(HANDLERS, name="the other")
    try:
        for one in (child, other):
            one.ask({})
        assert ready_among([child, other], 0) == []
        other.send({"do": "echo", "say": 1})
        assert ready_among([child, other], 60) == [other]
        other.receive()
        os.kill(child.pid, signal.SIGKILL)
        assert ready_among([child, other], 60) == [child]
        with pytest.raises(ChildDied, match="SIGKILL"):
            child.receive()
    finally:
        other.close()


def test_an_error_in_the_child_is_told_and_the_next_request_is_served(child: Child) -> None:
    with pytest.raises(ChildFailed, match=r"^the key 'x' is 3; it must be 4$") as told:
        child.ask({"do": "fail"})
    assert told.value.kind == "ConfigError"
    with pytest.raises(ChildFailed, match=r"^ZeroDivisionError: by nothing$"):
        child.ask({"do": "stumble"})
    with pytest.raises(ChildFailed, match="SystemExit"):
        child.ask({"do": "leave"})
    assert child.ask({"do": "echo", "say": 1})[0] == {"heard": 1}


def test_a_module_that_cannot_be_imported_is_told_to_whoever_asks() -> None:
    child = Child("tests.process.no_such_module", name="the child")
    with pytest.raises(ChildFailed, match="no_such_module"):
        child.ask({"do": "echo"})
    child.close()


def test_a_child_knows_the_parents_path_and_plugins(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", [])
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.load_plugin("tests.toy")
    child = Child(HANDLERS, name="the child")
    about, _ = child.ask({"do": "about"})
    child.close()
    assert about["path"] == [os.path.abspath(entry) for entry in sys.path]
    assert about["plugins"] == ["tests.toy"]
    assert about["is_plugin_there"]
    assert about["interrupt"], "Ctrl-C is for the parent alone"
    assert about["python_path"] == os.environ.get("PYTHONPATH")


def test_a_child_computes_on_one_thread_and_as_deterministically_as_its_parent(monkeypatch) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", [])
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        # Its module must import torch, as every module of ours that computes does.
        child = Child("tests.process.torch_handlers", name="the child")
        state, _ = child.ask({"do": "torch_state"})
        child.close()
    finally:
        torch.set_deterministic_debug_mode(before)
    assert state == {"threads": 1, "deterministic": True}


@pytest.mark.covers("000-D16")
def test_a_child_that_ends_is_reported_with_its_last_words(child: Child) -> None:
    with pytest.raises(
        ChildDied, match=r"the child ended \(exit code 7\).*\n  about to fall"
    ) as told:
        child.ask({"do": "crash"})
    assert told.value.exit_code == 7
    assert not psutil.pid_exists(child.pid)
    with pytest.raises(ChildDied):
        child.send({"do": "echo", "say": 1})


def test_a_child_that_crashes_says_where(child: Child) -> None:
    with pytest.raises(ChildDied, match=r"(?s)ended by SIGABRT.*child_handlers.py.* in abort"):
        child.ask({"do": "abort"})


def test_a_child_killed_from_outside_is_reported(child: Child) -> None:
    child.ask({})
    child.send({"do": "hang"})
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildDied, match="SIGKILL"):
        child.receive()


def test_a_child_that_hangs_says_where_and_is_killed(child: Child) -> None:
    child.ask({})
    child.send({"do": "hang"})
    assert not child.wait(0.01)
    with pytest.raises(ChildHung, match=r"(?s)within 0.3 seconds.*child_handlers.py.* in hang"):
        child.receive(timeout=0.3)
    assert not psutil.pid_exists(child.pid)


def test_a_request_that_a_hung_child_does_not_take_is_given_up(child: Child) -> None:
    child.ask({})
    child.send({"do": "hang"})
    child.timeout = 0.3
    with pytest.raises(ChildHung):
        child.send({"do": "echo", "say": 1}, [bytes(1 << 20)])


@pytest.mark.covers("000-D4")
def test_much_printing_neither_fills_memory_nor_stops_the_child(child: Child) -> None:
    child.ask({})
    before = psutil.Process().memory_info().rss
    child.ask({"do": "print_much", "megabytes": 50})
    assert psutil.Process().memory_info().rss - before < 20 << 20
    with pytest.raises(ChildDied, match="the last words"):
        child.ask({"do": "crash"})


def test_what_a_child_started_ends_with_it(child: Child) -> None:
    grandchild = psutil.Process(child.ask({"do": "start_a_grandchild"})[0]["pid"])
    child.close()
    psutil.wait_procs([grandchild], timeout=120)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_a_dead_child_is_noticed_though_a_grandchild_lives(child: Child) -> None:
    child.ask({"do": "start_a_grandchild"})
    with pytest.raises(ChildDied, match="exit code 7"):
        child.ask({"do": "crash"})


def test_files_and_threads_are_as_before_after_many_children() -> None:
    def start_and_stop(number: int) -> None:
        child = Child(HANDLERS, name="the child")
        if number % 3 == 0:
            child.kill()
        elif number % 3 == 1:
            with pytest.raises(ChildDied):
                child.ask({"do": "crash"})
        else:
            child.ask({})
        child.close()

    start_and_stop(0)
    gc.collect()
    before = open_files(), psutil.Process().num_threads()
    others = psutil.Process().children()
    for number in range(9):
        start_and_stop(number)
    # A thread that has done its work may take a moment to be gone.
    for _ in range(100):
        if psutil.Process().num_threads() == before[1]:
            break
        time.sleep(0.05)
    assert (open_files(), psutil.Process().num_threads()) == before
    assert psutil.Process().children() == others


def test_a_child_that_is_forgotten_ends() -> None:
    child = Child(HANDLERS, name="the child")
    process = psutil.Process(child.pid)
    del child
    gc.collect()
    assert not process.is_running()


PARENT = f"""
import signal, sys
from ludus.process.child import Child
child = Child({HANDLERS!r}, name="the child", outlives_parent="server" in sys.argv[1])
child.ask({{}})
if "exits" in sys.argv[1]:
    print(child.pid, flush=True)
    sys.exit()
if sys.argv[1] == "busy":
    child.send({{"do": "hang"}})
print(child.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("mood", ["idle", "busy"])
def test_no_child_outlives_a_killed_parent(mood: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mood], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], timeout=120)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("mood", ["server", "server that exits"])
def test_a_server_outlives_its_parent_and_ends_when_it_is_told_to(mood: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mood], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        if mood == "server":
            parent.kill()
    # Time enough to die with the parent, or by the pipe that has closed.
    _, alive = psutil.wait_procs([child], timeout=0.5)
    assert alive == [child]
    assert child.status() != psutil.STATUS_ZOMBIE
    child.terminate()
    psutil.wait_procs([child], timeout=120)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_server_is_closed_by_its_parent_as_any_child_is() -> None:
    server = Child(HANDLERS, name="a server", outlives_parent=True)
    process = psutil.Process(server.pid)
    assert server.ask({"do": "echo", "say": "hello"})[0] == {"heard": "hello"}
    server.close()
    assert not process.is_running()
    forgotten = Child(HANDLERS, name="a server", outlives_parent=True)
    process = psutil.Process(forgotten.pid)
    del forgotten
    gc.collect()
    assert process.is_running()
    (kept,) = _SERVERS
    kept.kill()
    assert not process.is_running()
    assert not _SERVERS


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]], ids=str)
def test_a_child_is_well_where_its_parents_standard_streams_are_closed(closed: list[int]) -> None:
    code = f"""
import os, sys
for fd in {closed}: os.close(fd)
from ludus.envs.shared_arrays import open_memory
from ludus.process.child import Child
memory = open_memory()
os.ftruncate(memory, 64)
child = Child("tests.process.child_handlers", name="worker", fds=[memory])
header, _ = child.ask({{"do": "write_to", "fd": memory}})
assert os.pread(memory, 5, 0) == b"hello", os.pread(memory, 5, 0)
child.close()
os._exit(42)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, cwd=ROOT)
    assert done.returncode == 42, done.stderr.decode()
