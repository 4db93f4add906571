"""What the children of test_child.py can be asked to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from ludus.config import registry
from ludus.core.errors import ConfigError
from ludus.process import talk


def echo(header, pieces):
    return {"heard": header["say"]}, pieces


def about(header, pieces):
    return {
        "path": sys.path,
        "plugins": registry.loaded_plugins,
        "is_plugin_there": "tests.toy" in sys.modules,
        "python_path": os.environ.get("PYTHONPATH"),
        "interrupt": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    }, ()


def torch_state(header, pieces):
    import torch

    return {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }, ()


def print_much(header, pieces):
    for _ in range(header["megabytes"]):
        os.write(1, b"x" * (1 << 20))
        os.write(2, b"\n")
    os.write(2, b"the last words\n")


def converse(header, pieces):
    was_addressed = talk.is_addressed()
    talk.say({"asks": header["question"]})
    return {"was_addressed": was_addressed, "heard": talk.hear()["answer"]}, ()


def fail(header, pieces):
    raise ConfigError("the key 'x' is 3; it must be 4")


def stumble(header, pieces):
    raise ZeroDivisionError("by nothing")


def leave(header, pieces):
    sys.exit(3)


def crash(header, pieces):
    os.write(2, b"about to fall\n")
    os._exit(7)


def abort(header, pieces):
    os.abort()


def hang(header, pieces):
    threading.Event().wait()


def start_a_grandchild(header, pieces):
    # It holds copies of everything the child has open, as a forked worker of an env would.
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return {"pid": process.pid}, ()


def write_to(header, pieces):
    os.pwrite(header["fd"], b"hello", 0)


def handlers():
    found = (
        about,
        converse,
        write_to,
        torch_state,
        print_much,
        fail,
        stumble,
        leave,
        crash,
        abort,
        hang,
    )
    named = {handler.__name__: handler for handler in (echo, start_a_grandchild, *found)}
    return {**named, "": lambda header, pieces: None}
